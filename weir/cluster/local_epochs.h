// SPDX-License-Identifier: Apache-2.0
//
// Epochs for schedulers outside of Weir: a Unix socket of a running server, by which they take part
// in courses of epochs with schedulers on the other servers of its cluster. The protocol is in
// weir/coordinate/local_wire.h; examples/epochs/ has a scheduler in C.
//
//   scheduler ==socket==> LocalEpochs --send()--> ... the leader, by the scheduler's course
//             <==========             <--receive()--
//
// Each name and reduction is a course of its own (weir/coordinate/epoch_combine.h), with one
// scheduler on each server. A scheduler that closes its connection leaves at once, so that the
// others do not wait for it. One that breaks the protocol gets an error with the reason, and its
// connection is closed. Without a leader every call is answered with -ENOTCONN.
//
// Bounds: kSchedulersMax connections, one call in progress each, kLocalDataMax of data, and
// kOutputMax of answers that are not read. It has a thread of its own: schedulers that are slow or
// hostile do not delay requests of clients. follow() and receive() may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/coordinate/message.h"

namespace weir::cluster {

class LocalEpochs {
 public:
  static constexpr std::size_t kSchedulersMax = 64;
  static constexpr std::size_t kOutputMax = std::size_t{1} << 20;

  // Called on its thread.
  using Send =
      std::function<void(std::uint32_t term, const std::string& course, EpochMessage message)>;

  // Listens and starts its thread. A socket that nobody listens on is replaced. The error names the
  // path.
  static Result<std::unique_ptr<LocalEpochs>> create(const std::string& path, Send send);
  // Ends the thread, closes all connections and removes the socket.
  virtual ~LocalEpochs() = default;
  LocalEpochs(const LocalEpochs&) = delete;
  LocalEpochs& operator=(const LocalEpochs&) = delete;

  // There is another leader, or none: term 0.
  virtual void follow(std::uint32_t term) = 0;
  virtual void receive(std::uint32_t term, const std::string& course, EpochMessage message) = 0;

 protected:
  LocalEpochs() = default;
};

}  // namespace weir::cluster
