// SPDX-License-Identifier: Apache-2.0
//
// The control of a running server: its HTTP API, the journal of permanent changes, and the
// checkpoints of lending records. It has its own thread and uses the server only through commands
// on its loop.
//
//   auto control = Control::create(*server, options);    applies the journal, binds the socket
//   (*control)->start();                                  answers from now on
//   server->run(...);
//   control->reset();                                     last checkpoint; removes the socket
//
//   GET     a snapshot that is at most kSnapshotAge old; all waiting requests share one
//   change  tried on the loop, journalled, synced, applied on the loop, and then confirmed. A
//           change that cannot be journalled never takes effect. Changes that wait meanwhile form
//           one group with one sync
//
// Every applied change has a number, the generation; a reload of the file counts as one. GET
// returns it as the ETag, and a change with If-Match is rejected with 412 if another change was
// applied since. It restarts with each start of the server, with another prefix, so that an old one
// never matches.
//
// weir-api(7) describes every path. A Control is created and destroyed by the thread that runs
// the server.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/control/http.h"
#include "weir/control/journal.h"
#include "weir/lock/view.h"
#include "weir/serve/cluster_port.h"
#include "weir/serve/server.h"
#include "weir/serve/target_port.h"

namespace weir::control {

struct ControlOptions {
  HttpOptions http;
  std::string
      journal;  // a file; empty: nothing survives a restart. Lending records are stored beside it
  Journal::Damage damage = Journal::Damage::kRefuse;
  std::string version;
  // The lock service, which outlives the control; nullptr: none. Called by the control's thread
  // only, and not before start().
  lock::Console* locks = nullptr;
  // The scheduler of lock requests, shown as another service; lifetime and calls as above.
  serve::TargetPort* lock_target = nullptr;

  bool is_on() const { return !http.socket_path.empty() || !http.tcp.empty(); }
};

class Control {
 public:
  static constexpr std::chrono::milliseconds kSnapshotAge{200};
  static constexpr std::chrono::seconds kEventInterval{1};
  static constexpr std::chrono::seconds kCheckpointInterval{1};

  // REQUIRES: the server does not run yet.
  static Result<std::unique_ptr<Control>> create(serve::Server& server,
                                                 const ControlOptions& options);
  // Stops its thread and saves the lending records.
  virtual ~Control() = default;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // The cluster to query; nullptr: none. It outlives this object or is stopped before. REQUIRES:
  // not started yet.
  virtual void set_cluster(serve::ClusterPort* cluster) = 0;
  virtual void start() = 0;
  // On the loop: makes a change from another source, such as the file. At once, or as soon as
  // changes on their way to the journal are applied.
  virtual void change_elsewhere(const std::function<void()>& change) = 0;
  // Later readers see the change. Thread-safe.
  virtual void changed() = 0;
  // Replaces the tokens of TCP, as HttpServer::set_tokens. Thread-safe.
  virtual void set_tokens(std::vector<Token> tokens) = 0;
  // Reads and checks the certificate of TCP; calling the result makes new connections use it.
  // REQUIRES: on the loop.
  virtual Result<std::function<void()>> read_certificates() = 0;
  virtual std::uint16_t tcp_port() const = 0;

 protected:
  Control() = default;
};

}  // namespace weir::control
