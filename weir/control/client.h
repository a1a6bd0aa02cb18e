// SPDX-License-Identifier: Apache-2.0
//
// The client of a server's control socket, for commands: one request, one response, with a timeout.
// Errors of the server are returned as Results with its message; if it cannot be reached, the error
// names the socket and what to do.
//
//   ControlClient client(control_socket_of(option));
//   Result<ControlAnswer> status = client.ask("GET", "/v1/status");
//
// Blocking; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weir/base/result.h"

namespace weir::control {

// /run/weir.sock for root, otherwise weir.sock in $XDG_RUNTIME_DIR; empty if that is not set.
std::string default_control_socket();
// The option if it is given, else $WEIR_SOCKET, else the default.
std::string control_socket_of(const std::string& option);

struct ControlAnswer {
  unsigned status = 0;
  std::string etag;
  std::uint64_t time_ns = 0;  // time of the data in the answer; 0: unknown
  std::string body;
};

class ControlClient {
 public:
  explicit ControlClient(std::string socket_path) : path_(std::move(socket_path)) {}

  // Returns any answer of the server.
  Result<ControlAnswer> send(std::string_view method, std::string_view target,
                             std::string_view body = {}, std::string_view if_match = {}) const;
  // The body of a 200; otherwise an error with the server's message and errno. ENOTCONN: no
  // server answers.
  Result<ControlAnswer> ask(std::string_view method, std::string_view target,
                            std::string_view body = {}) const;

 private:
  std::string path_;
};

// Escapes text for a path or a query.
std::string url_text(std::string_view text);

}  // namespace weir::control
