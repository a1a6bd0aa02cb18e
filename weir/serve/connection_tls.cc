// SPDX-License-Identifier: Apache-2.0
//
// The TLS part of a connection.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "weir/serve/connection.h"

namespace weir::serve {
namespace {

// Replies are encrypted in batches of this size; further ones wait unencrypted, counted. With the
// overhead of records and vectors, a batch takes kTlsBatchMemory.
constexpr std::size_t kTlsBatch = std::size_t{1} << 18;
constexpr std::uint64_t kTlsBatchMemory = kTlsBatch + kTlsBatch / 8;
// Cost of encrypting a byte, relative to copying it.
constexpr std::uint64_t kCostOfEncryption = 4;

}  // namespace

// The answer is the last message in plain text.
void Connection::begin_tls() {
  greeting_->sending.insert(greeting_->sending.end(), greeting_->out.begin(), greeting_->out.end());
  greeting_->out.clear();
  if (!context_.pool.reserve(kTlsReserve)) {
    ++context_.counters.refused;
    context_.log.note(EventLog::Kind::kRefusal,
                      fmt::format("refused TLS for {}: the memory limit is reached; raise "
                                  "it (--memory)",
                                  print_nid(identity_.nid)),
                      context_.now);
    return close();
  }
  tls_ = std::make_unique<host::TlsSession>(context_.server.tls_keys());
  tls_job_.connection = this;
  tls_job_.session = tls_.get();
  mark_dirty();
}

void Connection::decrypt(Input in) {
  if (!tls_->is_open()) {
    tls_job_.input.assign(in.begin(), in.end());
    is_shaking_tls_ = true;
    return context_.handshakes.add(tls_job_);
  }
  tls_->put(in);
  read_decrypted();
}

void Connection::shaken() {
  using Tls = host::TlsSession::State;
  is_shaking_tls_ = false;
  if (state_ == State::kClosed) return settle();
  if (tls_->has_output()) mark_dirty();
  if (tls_job_.reached == Tls::kFailed) return tls_failed();
  if (tls_job_.reached == Tls::kDone) {
    ++context_.counters.tls_sessions;
    read_decrypted();
  }
  mark_dirty();  // replies that could not be sent meanwhile
  receive();
}

void Connection::read_decrypted() {
  context_.plain.resize(host::TlsSession::kRecordBytes);
  while (state_ == State::kHandshake || state_ == State::kOpen) {
    const auto got = tls_->read(context_.plain);
    if (!got) return got.error().code == std::errc::broken_pipe ? close() : tls_failed();
    if (*got == 0) break;
    use(Input(context_.plain).first(*got));
  }
  if (tls_->has_output()) mark_dirty();  // for example an answer to a key update
}

// Sends the alert and closes.
void Connection::tls_failed() {
  ++context_.counters.tls_failed;
  context_.log.note(EventLog::Kind::kTls,
                    fmt::format("{}: TLS: {}", print_nid(identity_.nid), tls_->error()),
                    context_.now);
  if (state_ == State::kOpen) return close();
  has_said_end_ = true;
  state_ = State::kEnding;
  greeting_.reset();
  settle();
}

void Connection::send_encrypted() {
  if (!tls_->has_output()) end_tls_batch();
  if (tls_->is_open() && !tls_->has_output()) {
    if (greeting_ != nullptr) {
      tls_->write(greeting_->out);
      greeting_->out.clear();
      if (state_ != State::kHandshake) greeting_.reset();
    } else {
      if (sending_.empty()) std::swap(sending_, replies_);
      if (!sending_.empty()) encrypt_replies();
    }
  }
  if (tls_->has_output()) send_one(tls_->output());
}

// Headers and payload are combined into full records: a record costs more than a copy.
void Connection::encrypt_replies() {
  has_tls_batch_ = context_.pool.charge(memory_, kTlsBatchMemory);
  const std::size_t batch = has_tls_batch_ ? kTlsBatch : host::TlsSession::kRecordBytes;
  context_.plain.resize(host::TlsSession::kRecordBytes);
  std::size_t filled = 0;
  std::size_t total = 0;
  std::size_t skip = sent_of_first_;
  const auto add = [&](std::span<const std::byte> bytes) {
    const std::size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    bytes = bytes.subspan(skipped);
    while (!bytes.empty() && total < batch) {
      const std::size_t size =
          std::min({bytes.size(), context_.plain.size() - filled, batch - total});
      std::memcpy(context_.plain.data() + filled, bytes.data(), size);
      bytes = bytes.subspan(size);
      filled += size;
      total += size;
      if (filled < context_.plain.size()) continue;
      tls_->write(context_.plain);
      filled = 0;
    }
  };
  for (const PendingRequest* one = &sending_.front(); one != nullptr && total < batch;
       one = sending_.behind(*one)) {
    add({one->head.data(), one->head_size});
    add(one->payload);
  }
  tls_->write(Input(context_.plain).first(filled));
  context_.spend(total * kCostOfEncryption);
  release_sent(sent_of_first_ + total);
}

void Connection::end_tls_batch() {
  if (std::exchange(has_tls_batch_, false)) context_.pool.discharge(memory_, kTlsBatchMemory);
}

}  // namespace weir::serve
