// SPDX-License-Identifier: Apache-2.0
//
// Common code of the subcommands: how they are added to the command line, how they fail, and the
// exit statuses, which follow sysexits(3) so that scripts can distinguish a wrong option from a
// full disk.
//
// A subcommand is one file with one add_<name>(): it declares its options and sets a callback that
// sets the exit status. Parsing and wiring only; the work is done in weir/.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "weir/base/result.h"
#include "weir/host/log.h"

namespace weir::app {

enum class Exit : int {
  kOk = 0,
  kUsage = 64,
  kDataErr = 65,
  kNoInput = 66,
  kUnavailable = 69,
  kSoftware = 70,
  kCantCreate = 73,
  kIoErr = 74,
  kTempFail = 75,
  kConfig = 78,
};

// Whole lines for standard error. Text that cannot be written is lost; the command continues.
template <class... Arguments>
void print_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  host::log_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Ends the subcommand: its message is printed to stderr after the program's name.
struct Failure {
  Exit status;
  std::string message;
};

// Throws a Failure that names the option or object, if there is an error.
inline void check(const Result<void>& result, Exit status, std::string_view with) {
  if (result) return;
  throw Failure{status, (with.empty() ? "" : std::string(with) + ": ") + result.error().message()};
}

// The value; throws as above.
template <class T>
T value_or_fail(Result<T> result, Exit status, std::string_view with) {
  if (!result) check(tl::unexpected(result.error()), status, with);
  return std::move(*result);
}

// Throws a Failure if output could not be written: a full disk shows only when the buffer
// is flushed.
inline void check_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  check(fail_errno(errno, "standard output"), Exit::kIoErr, "");
}

// For options in 64 bits, which CLI11 parses like strtoull(3): -1 would be the largest number.
inline CLI::Validator not_negative() {
  return {[](std::string& text) {
            return text.starts_with('-') ? text + " is negative" : std::string{};
          },
          ""};
}

void add_alloc(CLI::App& weir, int& status);
void add_bench(CLI::App& weir, int& status);
void add_limit(CLI::App& weir, int& status);
void add_lock(CLI::App& weir, int& status);
void add_lustre(CLI::App& weir, int& status);
std::string lustre_version();  // of the program weir-lustre
void add_rules(CLI::App& weir, int& status);
void add_nfs(CLI::App& weir, int& status);
void add_serve(CLI::App& weir, int& status);
void add_sim(CLI::App& weir, int& status);

}  // namespace weir::app
