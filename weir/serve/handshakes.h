// SPDX-License-Identifier: Apache-2.0
//
// A thread that performs the TLS handshakes of one loop. The signature of an RSA key takes a
// millisecond or more, in which a loop would serve no client:
//
//   the loop    handshakes.add(job)          the thread has the job and its session from now on
//   the thread  job.session->shake(), then rings the bell of the loop
//   the loop    for (TlsJob* job : handshakes.take_done()) ...
//
// One job per connection at a time, so the number of connections bounds them. The thread starts
// with the first job.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "weir/base/result.h"
#include "weir/host/mailbox.h"
#include "weir/host/mutex.h"
#include "weir/host/tls.h"
#include "weir/serve/doorbell.h"

namespace weir::serve {

class Connection;

// One step of a handshake.
struct TlsJob {
  Connection* connection = nullptr;
  host::TlsSession* session = nullptr;
  std::vector<std::byte> input;  // from the client
  host::TlsSession::State reached = host::TlsSession::State::kWants;
};

class Handshakes {
 public:
  // REQUIRES: the bell outlives it.
  explicit Handshakes(Doorbell& bell) : bell_(bell) {}
  // REQUIRES: no job is left.
  ~Handshakes();
  Handshakes(const Handshakes&) = delete;
  Handshakes& operator=(const Handshakes&) = delete;

  // REQUIRES: the job and its session stay until it is returned by take_done(). Where no thread can
  // be started, the loop does the work.
  void add(TlsJob& job);
  std::vector<TlsJob*> take_done();
  bool has_done() const { return has_done_.load(); }

 private:
  bool has_thread();
  void run();
  void finish(TlsJob& job);

  Doorbell& bell_;
  std::unique_ptr<host::Mailbox<TlsJob*>> jobs_;  // an empty one ends the thread
  std::thread thread_;
  host::Mutex mutex_;
  std::vector<TlsJob*> done_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_done_ = false;
};

}  // namespace weir::serve
