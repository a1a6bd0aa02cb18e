// SPDX-License-Identifier: Apache-2.0
#include "weir/embed/c_handle.h"

#include <cerrno>
#include <string>

namespace weir::embed {
namespace {

thread_local std::string last_error;
thread_local bool is_out_of_memory = false;

}  // namespace

int refuse(const Error& error) {
  last_error = error.message();
  is_out_of_memory = false;
  return static_cast<int>(error.code);
}

int refuse(int code, std::string_view where, std::string_view what, std::string_view hint) {
  return refuse(fail(static_cast<std::errc>(code), where, what, hint).value());
}

int refuse_null(std::string_view call, std::string_view what) {
  return refuse(EINVAL, call, std::string(what) + " is NULL");
}

int refuse_freed(std::string_view call, std::string_view what) {
  return refuse(EBADF, call, "the " + std::string(what) + " was freed", "do not use it again");
}

int refuse_for_memory() noexcept {
  is_out_of_memory = true;
  return ENOMEM;
}

int answer(const Result<void>& result) { return result ? 0 : refuse(result.error()); }

extern "C" {

const char* weir_error() { return is_out_of_memory ? "out of memory" : last_error.c_str(); }

const char* weir_version() { return WEIR_VERSION; }

}  // extern "C"

}  // namespace weir::embed
