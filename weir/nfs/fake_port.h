// SPDX-License-Identifier: Apache-2.0
//
// A fake server for tests and fuzzers of the gateway's session: one export, a clock that does not
// advance, and a record of what the session does. Requests wait in a list until a test performs
// them.
//
//   FakePort port;                    wait: what each request would wait
//   port.memory                       bytes that may be held
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "weir/base/assert.h"
#include "weir/base/result.h"
#include "weir/serve/client_identity.h"
#include "weir/serve/session.h"

namespace weir::nfs {

class FakePort final : public serve::SessionPort {
 public:
  FakePort() {
    facts_.name = "nfs";
    identity.job = JobId("10.0.0.1@tcp");
  }

  std::size_t export_count() const override { return 1; }
  const serve::ExportFacts& export_at(std::size_t /*index*/) const override { return facts_; }
  const serve::ExportFacts* find_export(std::string_view /*name*/) const override {
    return &facts_;
  }
  void open(const serve::ExportFacts& facts, serve::OpenedExport& opened) override {
    opened.facts = &facts;
  }
  Result<Attributes> identify(const serve::Claims& /*claims*/) override { return identity; }
  serve::TlsOptions::Mode tls() const override { return serve::TlsOptions::Mode::kOff; }
  void extents(const serve::OpenedExport& /*opened*/, std::uint64_t /*offset*/,
               std::uint64_t /*length*/,
               const serve::Store::ExtentVisitor& /*visit*/) const override {}
  Nanoseconds expected_wait(const serve::IoRequest& /*request*/) const override { return wait; }
  void answer(std::uint64_t id, const serve::OwnResult& result) override {
    WEIR_ASSERT(!answers.contains(id), id);
    answers[id] = result;
  }

  serve::Ends ends() const override { return own_ends; }
  void set_ends(const serve::Ends& ends) override {
    own_ends = ends;
    identity.nid = serve::nid_of(ends.client);
  }
  void connect(const serve::ServerAddress& server,
               const serve::UpstreamSource& source_of_it) override {
    connected_to = server.text;
    source = source_of_it;
  }
  std::size_t send_to_client(std::span<const std::byte> piece) override {
    ++client_pieces;
    return send(session == nullptr ? nullptr : session->to_client(), client_took, piece);
  }
  std::size_t send_to_server(std::span<const std::byte> piece) override {
    return send(session == nullptr ? nullptr : session->to_server(), server_took, piece);
  }
  bool has_room(std::size_t bytes) const override { return held + bytes <= memory; }
  bool hold(std::size_t bytes) override {
    if (!has_room(bytes)) return false;
    held += bytes;
    return true;
  }
  void release(std::size_t bytes) override {
    WEIR_ASSERT(bytes <= held, bytes, held);
    held -= bytes;
  }
  Instant now() const override { return time; }
  void wake_at(Instant when) override { wakes_at = when; }
  void note(std::string_view text) override { notes.append(text).append("\n"); }
  void hang_up() override { ++hang_ups; }

  Attributes identity;  // of the client
  Nanoseconds wait{0};
  std::size_t memory = std::size_t{1} << 26;
  std::size_t held = 0;
  Instant time{std::chrono::seconds{1000}};
  Instant wakes_at = kNever;
  serve::Ends own_ends;
  std::string connected_to;
  serve::UpstreamSource source;
  std::string notes;
  int hang_ups = 0;
  std::map<std::uint64_t, serve::OwnResult> answers;
  // If set, sockets take up to this many bytes of a piece at once.
  serve::Session* session = nullptr;
  std::size_t takes_at_once = 0;
  std::string client_took;
  int client_pieces = 0;
  std::string server_took;

 private:
  static void drain(serve::ByteQueue& queue, std::string& into) {
    for (std::array<iovec, 1> part{}; queue.parts(part) == 1;) {
      into.append(static_cast<const char*>(part[0].iov_base), part[0].iov_len);
      queue.drop(part[0].iov_len);
    }
  }
  std::size_t send(serve::ByteQueue* queue, std::string& took, std::span<const std::byte> piece) {
    if (queue == nullptr) return 0;
    drain(*queue, took);
    const std::size_t size = std::min(piece.size(), takes_at_once);
    took.append(reinterpret_cast<const char*>(piece.data()), size);
    return size;
  }

  serve::ExportFacts facts_;
};

}  // namespace weir::nfs
