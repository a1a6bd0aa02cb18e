// SPDX-License-Identifier: Apache-2.0
//
// A deliberate race between a callback of gRPC and the thread that made the call: the marks of
// grpc_marks.cc must not hide it. The argument selects how the callback accesses the shared data.
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

namespace {

struct Shared {
  char text[64] = {};
  int count = 0;
};

[[gnu::noinline]] void planted_count(Shared& shared) { ++shared.count; }
// Copied by a function that the thread sanitizer intercepts.
[[gnu::noinline]] void planted_copy(Shared& shared, const char* text, std::size_t size) {
  std::memmove(shared.text, text, size);
}

}  // namespace

int main(int count, char** arguments) {
  const bool copies = count > 1 && std::string_view(arguments[1]) == "copy";
  const std::string text(static_cast<std::size_t>(count) * 8, 'x');
  Shared shared;
  const auto touch = [&] {
    copies ? planted_copy(shared, text.data(), text.size()) : planted_count(shared);
  };
  grpc::GenericStub stub(
      grpc::CreateChannel("unix:/nonexistent/socket", grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const grpc::Slice question("?");
  const grpc::ByteBuffer request(&question, 1);
  grpc::ByteBuffer reply;
  std::atomic<bool> is_done = false;
  stub.UnaryCall(&context, "/nobody/Answers", {}, &request, &reply, [&](const grpc::Status&) {
    touch();
    is_done.store(true, std::memory_order_relaxed);  // which orders nothing
  });
  touch();
  while (!is_done.load(std::memory_order_relaxed)) {
  }
  return 0;
}
