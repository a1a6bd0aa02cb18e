// SPDX-License-Identifier: Apache-2.0
//
// A connection of the API for Boost.Beast: plain, or encrypted by an HttpCipher. At most one read
// and one write at a time, as of any stream; the object must exist until both are complete. Call
// async_handshake() before anything else.
//
// The cipher's input is in a buffer of kInputBytes, and a write encrypts at most kPieceBytes at a
// time, so an encrypted connection holds little more memory than a plain one.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/basic_stream.hpp>

#include "weir/control/http_keys.h"

namespace weir::control {

class HttpStream {
 public:
  using Plain = boost::beast::basic_stream<boost::asio::generic::stream_protocol>;
  using Socket = Plain::socket_type;
  using executor_type = Plain::executor_type;
  using ErrorCode = boost::system::error_code;
  using Done = std::function<void(ErrorCode, std::size_t)>;

  static constexpr std::size_t kInputBytes = 4096;
  static constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

  // Without a cipher it is plain.
  HttpStream(Socket socket, std::unique_ptr<HttpCipher> cipher)
      : plain_(std::move(socket)), cipher_(std::move(cipher)) {
    if (cipher_ != nullptr) input_ = std::make_unique<Input>();
  }

  executor_type get_executor() { return plain_.get_executor(); }
  Socket& socket() { return plain_.socket(); }
  void expires_after(std::chrono::nanoseconds time) { plain_.expires_after(time); }
  void expires_never() { plain_.expires_never(); }

  // Nothing to do for a plain connection.
  void async_handshake(Done done) {
    if (cipher_ == nullptr) return later(std::move(done), {}, 0);
    plain_.async_read_some(boost::asio::buffer(*input_),
                           [this, done = std::move(done)](ErrorCode error, std::size_t bytes) {
                             if (error) return done(error, 0);
                             continue_handshake(bytes, done);
                           });
  }

  template <class Buffers, class Callback>
  void async_read_some(const Buffers& to, Callback&& callback) {
    if (cipher_ == nullptr) {
      plain_.async_read_some(to, std::forward<Callback>(callback));
    } else {
      read(first_of(to), keep(std::forward<Callback>(callback)));
    }
  }

  template <class Buffers, class Callback>
  void async_write_some(const Buffers& from, Callback&& callback) {
    if (cipher_ == nullptr) {
      plain_.async_write_some(from, std::forward<Callback>(callback));
      return;
    }
    // It has failed while data was read.
    if (!cipher_->is_open()) {
      return later(keep(std::forward<Callback>(callback)), boost::asio::error::broken_pipe, 0);
    }
    std::vector<std::byte> piece(std::min(boost::asio::buffer_size(from), kPieceBytes));
    boost::asio::buffer_copy(boost::asio::buffer(piece), from);
    cipher_->write(piece);
    flush([bytes = piece.size(), done = keep(std::forward<Callback>(callback))](
              ErrorCode error, std::size_t) { done(error, error ? 0 : bytes); });
  }

  // Sends no more.
  void async_end(Done done) {
    const auto shut = [this, done = std::move(done)](ErrorCode error, std::size_t) {
      ErrorCode ignored;
      plain_.socket().shutdown(boost::asio::socket_base::shutdown_send, ignored);
      done(error, 0);
    };
    if (cipher_ == nullptr) return later(shut, {}, 0);
    cipher_->end();
    flush(shut);
  }

 private:
  using Input = std::array<std::byte, kInputBytes>;

  // Callbacks of Beast can only be moved.
  template <class Callback>
  static Done keep(Callback&& callback) {
    auto kept = std::make_shared<std::decay_t<Callback>>(std::forward<Callback>(callback));
    return [kept](ErrorCode error, std::size_t bytes) { (*kept)(error, bytes); };
  }

  template <class Buffers>
  static std::span<std::byte> first_of(const Buffers& to) {
    const auto end = boost::asio::buffer_sequence_end(to);
    for (auto one = boost::asio::buffer_sequence_begin(to); one != end; ++one) {
      const boost::asio::mutable_buffer buffer(*one);
      if (buffer.size() > 0) return {static_cast<std::byte*>(buffer.data()), buffer.size()};
    }
    return {};
  }

  // A function never calls the callback that it was given: it waits for a timer that has expired.
  void later(Done done, ErrorCode error, std::size_t bytes) {
    due_.async_wait([done = std::move(done), error, bytes](ErrorCode) { done(error, bytes); });
  }

  void continue_handshake(std::size_t bytes, const Done& done) {
    cipher_->put(std::span(*input_).first(bytes));
    const HttpCipher::State state = cipher_->shake();
    flush([this, state, done](ErrorCode error, std::size_t) {
      if (error) return done(error, 0);
      if (state == HttpCipher::State::kWants) return async_handshake(done);
      done(state == HttpCipher::State::kDone ? ErrorCode() : boost::asio::error::access_denied, 0);
    });
  }

  void read(std::span<std::byte> to, Done done) {
    if (to.empty()) return later(std::move(done), {}, 0);
    if (!cipher_->is_open()) return later(std::move(done), boost::asio::error::eof, 0);
    const auto got = cipher_->read(to);
    if (!got) return later(std::move(done), boost::asio::error::eof, 0);
    if (*got > 0) return later(std::move(done), {}, *got);
    plain_.async_read_some(boost::asio::buffer(*input_),
                           [this, to, done = std::move(done)](ErrorCode error, std::size_t bytes) {
                             if (error) return done(error, 0);
                             cipher_->put(std::span(*input_).first(bytes));
                             read(to, done);
                           });
  }

  void flush(Done done) {
    if (!cipher_->has_output()) return later(std::move(done), {}, 0);
    const std::span<const std::byte> output = cipher_->output();
    plain_.async_write_some(boost::asio::buffer(output.data(), output.size()),
                            [this, done = std::move(done)](ErrorCode error, std::size_t bytes) {
                              if (error) return done(error, 0);
                              cipher_->sent(bytes);
                              flush(done);
                            });
  }

  Plain plain_;
  std::unique_ptr<HttpCipher> cipher_;
  std::unique_ptr<Input> input_;
  boost::asio::steady_timer due_{get_executor(), boost::asio::steady_timer::time_point::min()};
};

}  // namespace weir::control
