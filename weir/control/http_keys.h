// SPDX-License-Identifier: Apache-2.0
//
// TLS of the API over TCP: a certificate, and one cipher for each connection. They are interfaces,
// so that only programs that call load_http_keys() link a TLS library; the static weir-lustre
// serves the Unix socket only.
//
//   auto keys = load_http_keys(directory);      the files are those of host/tls.h
//   HttpServer::create({.tcp = "0.0.0.0:9810", .tokens = ..., .keys = *keys}, answer);
//
// The functions of HttpCipher are those of host::TlsSession, with the same requirements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "weir/base/result.h"

namespace weir::control {

// The server side of one connection.
class HttpCipher {
 public:
  enum class State : std::uint8_t { kWants, kDone, kFailed };

  virtual ~HttpCipher() = default;
  HttpCipher(const HttpCipher&) = delete;
  HttpCipher& operator=(const HttpCipher&) = delete;

  virtual void put(std::span<const std::byte> input) = 0;
  virtual State shake() = 0;
  virtual bool is_open() const = 0;
  virtual Result<std::size_t> read(std::span<std::byte> to) = 0;
  virtual void write(std::span<const std::byte> plain) = 0;
  virtual void end() = 0;
  virtual bool has_output() const = 0;
  virtual std::span<const std::byte> output() = 0;
  virtual void sent(std::size_t bytes) = 0;

 protected:
  HttpCipher() = default;
};

// The certificate of the server.
class HttpKeys {
 public:
  using Ptr = std::shared_ptr<const HttpKeys>;

  virtual ~HttpKeys() = default;
  HttpKeys(const HttpKeys&) = delete;
  HttpKeys& operator=(const HttpKeys&) = delete;

  virtual std::unique_ptr<HttpCipher> open() const = 0;
  // Whether the certificate is for this name or address.
  virtual bool is_for(const std::string& host) const = 0;
  // The keys in the files now. A new certificate must be valid now.
  virtual Result<Ptr> load_again() const = 0;

 protected:
  HttpKeys() = default;
};

// The error names the file.
Result<HttpKeys::Ptr> load_http_keys(const std::string& directory);

}  // namespace weir::control
