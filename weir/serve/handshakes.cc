// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/handshakes.h"

#include <system_error>
#include <utility>

namespace weir::serve {

Handshakes::~Handshakes() {
  if (!thread_.joinable()) return;
  if (jobs_->put_always(nullptr)) thread_.join();
}

void Handshakes::add(TlsJob& job) {
  if (has_thread() && jobs_->put_always(&job)) return;
  finish(job);
}

std::vector<TlsJob*> Handshakes::take_done() {
  has_done_ = false;
  const host::MutexLock lock(mutex_);
  return std::exchange(done_, {});
}

bool Handshakes::has_thread() {
  if (thread_.joinable()) return true;
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return false;
  jobs_ = std::make_unique<host::Mailbox<TlsJob*>>(std::move(*wake_fd));
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void Handshakes::run() {
  for (;;) {
    jobs_->wait(kNever);
    for (TlsJob* const job : jobs_->take()) {
      if (job == nullptr) return;
      finish(*job);
    }
  }
}

void Handshakes::finish(TlsJob& job) {
  job.session->put(job.input);
  job.reached = job.session->shake();
  {
    const host::MutexLock lock(mutex_);
    done_.push_back(&job);
  }
  has_done_ = true;
  bell_.ring();
}

}  // namespace weir::serve
