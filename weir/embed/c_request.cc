// SPDX-License-Identifier: Apache-2.0
#include "weir/embed/c_request.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "weir/base/job_id.h"
#include "weir/base/operation_kind.h"
#include "weir/base/quantity.h"
#include "weir/base/quote.h"
#include "weir/classify/nid.h"
#include "weir/classify/opcode.h"
#include "weir/embed/c_handle.h"

namespace weir::embed {
namespace {

using State = weir_request::State;

// By weir_operation: the kind, and the nearest opcode for rules.
struct Operation {
  OperationKind kind;
  std::string_view opcode;
};
constexpr std::array<Operation, kOperationKinds> kOperations = {{
    {OperationKind::kRead, "ost_read"},
    {OperationKind::kWrite, "ost_write"},
    {OperationKind::kFlush, "ost_sync"},
    {OperationKind::kDiscard, "ost_punch"},
    {OperationKind::kZero, "ost_fallocate"},
    {OperationKind::kMetadataRead, "mds_getattr"},
    {OperationKind::kMetadataChange, "mds_reint"},
    {OperationKind::kLock, "ldlm_enqueue"},
    {OperationKind::kOther, ""},
}};
std::uint32_t opcode_of(std::size_t operation) {
  static const auto numbers = [] {
    std::array<std::uint32_t, kOperationKinds> made;
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = opcode_number(kOperations[i].opcode).value_or(kUnknownId);
    }
    return made;
  }();
  return numbers[operation];
}
static_assert(WEIR_READ == 0 && WEIR_OTHER == kOperationKinds - 1);

// The end of a long address distinguishes the clients of a site.
JobId job_of(const Nid& nid) {
  const std::string text = print_nid(nid);
  return JobId(std::string_view(text).substr(text.size() - std::min(text.size(), JobId::kSizeMax)));
}

// Runs a change of a request that is outside.
template <class Change>
int change(weir_request* request, std::string_view call, Change body) {
  return call_c(call, [&]() -> int {
    if (const int refused = hold(request, call)) return refused;
    struct Release {
      ~Release() { request->state.store(State::kOutside, std::memory_order_release); }
      weir_request* request;
    };
    const Release release{request};
    return body();
  });
}

}  // namespace

int refuse_state(State state, std::string_view call) {
  switch (state) {
    case State::kQueued:
      return refuse(EBUSY, call, "the request is queued", "withdraw it first");
    case State::kRunning:
      return refuse(EBUSY, call, "the request runs", "complete it first");
    case State::kInChange:
      return refuse(EBUSY, call, "another thread uses the request",
                    "a request belongs to one thread at a time");
    case State::kFreed:
      return refuse_freed(call, "request");
    case State::kOutside:
      break;
  }
  return refuse(EINVAL, call, "the request is neither queued nor does it run", "admit it first");
}

int hold(weir_request* request, std::string_view call) {
  if (request == nullptr) return refuse_null(call, "request");
  State expected = State::kOutside;
  if (request->state.compare_exchange_strong(expected, State::kInChange,
                                             std::memory_order_acquire)) {
    return 0;
  }
  return refuse_state(expected, call);
}

extern "C" {

int weir_request_new(weir_request** request) {
  return call_c(__func__, [&]() -> int {
    if (request == nullptr) return refuse_null("weir_request_new", "request");
    *request = new weir_request;
    return 0;
  });
}

int weir_request_free(weir_request* request) {
  return call_c(__func__, [&]() -> int {
    if (request == nullptr) return 0;
    if (const int refused = hold(request, "weir_request_free")) return refused;
    request->state.store(State::kFreed, std::memory_order_release);
    Quarantine<weir_request>::get().add(request);
    return 0;
  });
}

int weir_request_set_operation(weir_request* request, int operation, uint64_t bytes) {
  return change(request, __func__, [&]() -> int {
    if (operation < WEIR_READ || operation > WEIR_OTHER) {
      return refuse(EINVAL, "operation " + std::to_string(operation), "is not valid",
                    "expected WEIR_READ to WEIR_OTHER");
    }
    if (bytes > kRequestBytesMax) {
      return refuse(EINVAL, std::to_string(bytes) + " bytes", "are too many for a request",
                    "at most 1 TiB");
    }
    const auto known = static_cast<std::size_t>(operation);
    request->operation = kOperations[known].kind;
    request->attributes.opcode = opcode_of(known);
    request->bytes = Bytes{bytes};
    return 0;
  });
}

int weir_request_set_client(weir_request* request, const char* address) {
  return change(request, __func__, [&]() -> int {
    if (address == nullptr) return refuse_null("weir_request_set_client", "address");
    std::string text = address;
    if (text.find('@') == std::string::npos) text += "@tcp";
    const auto nid = parse_nid(text);
    if (!nid) {
      return refuse(EINVAL, "client " + quote(address), "is not a valid address",
                    "expected '10.0.0.7', 'fe80::1' or a NID as '10.0.0.7@o2ib'");
    }
    request->attributes.nid = *nid;
    if (!request->has_job) request->attributes.job = job_of(*nid);
    return 0;
  });
}

int weir_request_set_job(weir_request* request, const char* job) {
  return change(request, __func__, [&]() -> int {
    const std::string_view name = job == nullptr ? "" : job;
    if (name.size() > JobId::kSizeMax) {
      return refuse(EINVAL, "job " + quote(name), "is too long", "at most 31 bytes");
    }
    const Nid& client = request->attributes.nid;
    request->has_job = !name.empty();
    request->attributes.job = request->has_job  ? JobId(name)
                              : client == Nid{} ? JobId()
                                                : job_of(client);
    return 0;
  });
}

int weir_request_set_user(weir_request* request, uint32_t uid, uint32_t gid) {
  return change(request, __func__, [&]() -> int {
    request->attributes.uid = uid;
    request->attributes.gid = gid;
    return 0;
  });
}

int weir_request_set_project(weir_request* request, uint32_t project) {
  return change(request, __func__, [&]() -> int {
    request->attributes.projid = project;
    return 0;
  });
}

int weir_request_set_context(weir_request* request, void* context) {
  return change(request, __func__, [&]() -> int {
    request->context = context;
    return 0;
  });
}

void* weir_request_context(const weir_request* request) {
  if (request == nullptr) return nullptr;
  return request->state.load(std::memory_order_acquire) == State::kFreed ? nullptr
                                                                         : request->context;
}

}  // extern "C"

}  // namespace weir::embed
