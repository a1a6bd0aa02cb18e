// SPDX-License-Identifier: Apache-2.0
//
// A fake server for tests and fuzzers of the session: two exports, accepted claims, and a record of
// the session's answers. Nothing is served.
//
//   scratch    1 MiB with all features
//   archive    1 MiB, read-only
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weir/base/result.h"
#include "weir/serve/session.h"

namespace weir::nbd {

class FakePort final : public serve::SessionPort {
 public:
  static constexpr std::uint64_t kSize = 1U << 20;

  FakePort() {
    exports_[0].name = "scratch";
    exports_[1].name = "archive";
    exports_[1].is_read_only = true;
    for (serve::ExportFacts& one : exports_) {
      one.size = kSize;
      one.blocks = {512, 4096, 1U << 16};
      one.features = one.is_read_only ? serve::kCanFlush : serve::kCanAll;
    }
  }

  std::size_t export_count() const override { return exports_.size(); }
  const serve::ExportFacts& export_at(std::size_t index) const override { return exports_[index]; }
  const serve::ExportFacts* find_export(std::string_view name) const override {
    for (const serve::ExportFacts& one : exports_) {
      if (one.name == name || name.empty()) return &one;
    }
    return nullptr;
  }
  void open(const serve::ExportFacts& facts, serve::OpenedExport& opened) override {
    opened.facts = &facts;
  }
  Result<Attributes> identify(const serve::Claims& claims) override {
    if (claims.uid == 0U) return fail(std::errc::permission_denied, "uid 0", "is not believed");
    Attributes identity;
    if (claims.job) identity.job = *claims.job;
    return identity;
  }
  serve::TlsOptions::Mode tls() const override { return tls_mode; }
  void extents(const serve::OpenedExport& /*opened*/, std::uint64_t /*offset*/,
               std::uint64_t length, const serve::Store::ExtentVisitor& visit) const override {
    for (bool is_hole = false; length > 0; is_hole = !is_hole) {
      const std::uint64_t one = length < 4096 ? length : 4096;
      length -= one;
      if (!visit(one, is_hole)) return;
    }
  }
  Nanoseconds expected_wait(const serve::IoRequest& /*request*/) const override {
    return Nanoseconds{0};
  }
  void answer(std::uint64_t id, const serve::OwnResult& result) override {
    answered_id = id;
    answered = result;
  }

  serve::TlsOptions::Mode tls_mode = serve::TlsOptions::Mode::kOff;
  std::uint64_t answered_id = 0;
  std::optional<serve::OwnResult> answered;

 private:
  std::array<serve::ExportFacts, 2> exports_;
};

}  // namespace weir::nbd
