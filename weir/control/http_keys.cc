// SPDX-License-Identifier: Apache-2.0
#include "weir/control/http_keys.h"

#include <utility>

#include "weir/host/tls.h"

namespace weir::control {
namespace {

using host::TlsKeys;
using host::TlsSession;

class TlsCipher final : public HttpCipher {
 public:
  explicit TlsCipher(TlsKeys::Ptr keys) : session_(std::move(keys)) {}

  void put(std::span<const std::byte> input) override { session_.put(input); }
  State shake() override {
    switch (session_.shake()) {
      case TlsSession::State::kWants:
        return State::kWants;
      case TlsSession::State::kDone:
        return State::kDone;
      case TlsSession::State::kFailed:
        break;
    }
    return State::kFailed;
  }
  bool is_open() const override { return session_.is_open(); }
  Result<std::size_t> read(std::span<std::byte> to) override { return session_.read(to); }
  void write(std::span<const std::byte> plain) override { session_.write(plain); }
  void end() override { session_.end(); }
  bool has_output() const override { return session_.has_output(); }
  std::span<const std::byte> output() override { return session_.output(); }
  void sent(std::size_t bytes) override { session_.sent(bytes); }

 private:
  TlsSession session_;
};

class CertificateKeys final : public HttpKeys {
 public:
  explicit CertificateKeys(TlsKeys::Ptr keys) : keys_(std::move(keys)) {}

  std::unique_ptr<HttpCipher> open() const override { return std::make_unique<TlsCipher>(keys_); }
  bool is_for(const std::string& host) const override { return keys_->is_for(host); }
  Result<Ptr> load_again() const override {
    auto keys = TlsKeys::load_again(keys_);
    if (!keys) return tl::unexpected(keys.error());
    return std::make_shared<const CertificateKeys>(*std::move(keys));
  }

 private:
  TlsKeys::Ptr keys_;
};

}  // namespace

Result<HttpKeys::Ptr> load_http_keys(const std::string& directory) {
  auto keys = TlsKeys::load(directory, TlsKeys::Clients::kAny);
  if (!keys) return tl::unexpected(keys.error());
  return std::make_shared<const CertificateKeys>(*std::move(keys));
}

}  // namespace weir::control
