// SPDX-License-Identifier: Apache-2.0
//
// The control of a running server: its HTTP API, the journal of permanent changes, and the
// checkpoints of lending records. It has its own thread and uses the server only through commands
// on its loop.
//
//   auto control = Control::create(*server, options);    the journal is applied, the socket bound
//   (*control)->start();                                  answers from now on
//   server->run(...);
//   control->reset();                                     the last checkpoint; the socket goes
//
//   GET     a snapshot that is at most kSnapshotAge old; all waiting requests share one
//   change  tried on the loop, journalled, synced, applied on the loop,
//           and then confirmed: a change that cannot be journalled never
//           takes effect. Changes that wait meanwhile form one group with
//           one sync
//
// Every change that is applied has a number, the generation; a reload of the file counts as one.
// GET tells it as the ETag, and a change with If-Match is rejected with 412 if another change was
// applied since. It restarts with each start of the server, with another prefix, so that an old one
// never matches.
//
// weir-api(7) has every path. A Control is made and destroyed by the thread that runs the server.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

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
  std::string journal;  // a file; empty: nothing outlives the process. Records are beside it
  Journal::Damage damage = Journal::Damage::kRefuse;
  std::string version;
  // The lock service, which outlives the control; nullptr: there is none. Asked by the control's
  // thread alone, and not before start().
  lock::Console* locks = nullptr;
  // The scheduler of its requests, shown as one more service; as above.
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
  // Ends its thread, and keeps what outlives the process.
  virtual ~Control() = default;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // What it asks about the cluster; nullptr: the server is in none. It outlives this, or ends
  // before. REQUIRES: not started yet.
  virtual void set_cluster(serve::ClusterPort* cluster) = 0;
  virtual void start() = 0;
  // On the loop: something is changed by other means than this, such as the file. At once, or as
  // soon as the changes that are on their way to the journal are carried out.
  virtual void change_elsewhere(const std::function<void()>& change) = 0;
  // Readers that come from now on see what was changed. From any thread.
  virtual void changed() = 0;
  virtual std::uint16_t tcp_port() const = 0;

 protected:
  Control() = default;
};

}  // namespace weir::control
