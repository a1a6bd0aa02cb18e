// SPDX-License-Identifier: Apache-2.0
//
// weir nfs check: checks an NFS server before clients mount it through the gateway.
#include "apps/weir/nfs_check.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include <fmt/core.h>

#include "apps/weir/command.h"
#include "weir/nfs/gateway.h"
#include "weir/nfs/server_check.h"

namespace weir::app {
namespace {

constexpr std::chrono::seconds kTimeout{5};  // for each answer

const char* mark_of(nfs::Finding::Level level) {
  switch (level) {
    case nfs::Finding::Level::kGood:
      return "ok";
    case nfs::Finding::Level::kWarning:
      return "warning";
    case nfs::Finding::Level::kProblem:
      break;
  }
  return "problem";
}

int check_nfs_server(const std::string& text) {
  const serve::ServerAddress server = value_or_fail(nfs::find_server(text), Exit::kUsage, "SERVER");
  const auto findings = nfs::check_server(nfs::ask_over_tcp(server, kTimeout));
  for (const nfs::Finding& one : findings) {
    fmt::print("{:<9}{}\n", std::string(mark_of(one.level)) + ":", one.text);
  }
  check_output();
  const auto is_problem = [](const nfs::Finding& one) {
    return one.level == nfs::Finding::Level::kProblem;
  };
  const bool has_problem = std::any_of(findings.begin(), findings.end(), is_problem);
  return static_cast<int>(has_problem ? Exit::kUnavailable : Exit::kOk);
}

}  // namespace

CLI::App* add_nfs_check(CLI::App& command, int& status) {
  CLI::App* const check = command.add_subcommand(
      "check", "Check an NFS server: versions, exports, and ways to bypass the gateway");
  auto server = std::make_shared<std::string>();
  check->add_option("SERVER", *server, "The NFS server: HOST[:PORT] (port 2049)")
      ->required()
      ->type_name("HOST");
  check->footer("\nExamples:\n  weir nfs check nfs.example.org\n\nManual: weir-nfs(1).");
  check->callback([server, &status] { status = check_nfs_server(*server); });
  return check;
}

}  // namespace weir::app
