// SPDX-License-Identifier: Apache-2.0
//
// Common code of the commands that use a running server: the option that names its socket, and
// printing. They call the API and show the answer; with --json unchanged.
//
//   Remote remote;  remote.add_to(*command);
//   const Json status = remote.get("/v1/status");
//
// The server escapes names from clients, so the output is safe for a terminal.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "apps/weir/command.h"
#include "weir/control/client.h"

namespace weir::app {

using Json = nlohmann::ordered_json;

struct Remote {
  std::string socket;
  bool json = false;

  void add_to(CLI::App& command) {
    command
        .add_option("--control", socket,
                    "Connect to this control socket (default $WEIR_SOCKET, otherwise the default "
                    "of weir serve)")
        ->type_name("PATH");
    command.add_flag("--json", json, "Print the response of the server as JSON");
  }

  control::ControlClient client() const {
    return control::ControlClient(control::control_socket_of(socket));
  }
  // The answer of the server; throws a Failure on an error.
  control::ControlAnswer answer(std::string_view method, const std::string& target,
                                std::string_view body = {}) const;
  // Only its text.
  std::string ask(std::string_view method, const std::string& target,
                  std::string_view body = {}) const;
  Json get(const std::string& target) const;
};

// 1234567 as "1.23M", for columns.
std::string short_number(double number);
// Nanoseconds as "1.2ms".
std::string short_time(double ns);

// The body of GET /v1/cluster/rules as a table.
void show_cluster_rules(const Json& rules);
// Starts, changes or stops a rule of the cluster: "start NAME CONDITIONS KEY=VALUE...". Returns the
// answer.
std::string change_cluster_rule(const Remote& remote, const std::string& service,
                                const std::string& command);

void add_remote_commands(CLI::App& weir, int& status);
void add_cluster(CLI::App& weir, int& status);
void add_lctl(CLI::App& weir, int& status);
void add_top(CLI::App& weir, int& status);
// Implements `weir complete WORDS...`: prints candidates for the last word, one per line.
int run_complete(const CLI::App& weir, std::vector<std::string> words);
// Implements `lctl ARGS...`.
int run_lctl(const std::vector<std::string>& arguments);

}  // namespace weir::app
