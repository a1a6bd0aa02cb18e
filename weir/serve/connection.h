// SPDX-License-Identifier: Apache-2.0
//
// One client of any protocol: passes its bytes to its Session (session.h), its requests through the
// Gate and the store, and its replies back. Everything happens in one thread, in callbacks of the
// IoLoop or calls of its Loop.
//
//   kHandshake --negotiated--> kOpen --leaves, SIGTERM--> kEnding --all answered--> kClosed
//        \____________________\___the client disconnects or breaks the protocol______/
//
// Memory. Bytes arrive in a buffer of a common pool and are used at once; the session turns a
// header into a PendingRequest, the payload of a write goes to that request's own buffer, and a
// large remainder is received directly into it. So an idle connection consists only of this object.
// When there is no memory for a payload or another request, or too many requests are unanswered,
// the remaining bytes are kept and nothing more is read from this socket until there is room; other
// clients are not affected. All memory is counted (buffer_pool.h): kConnectionReserve is reserved
// for each connection before it is accepted, kTlsReserve for each TLS session; requests beyond
// kRequestsFree and encrypted replies are charged. During the handshake nothing more is read or
// answered while kAnswersMax bytes of answers wait for the client.
//
// A client that announces a large write and does not send it would block memory that others need.
// So while another connection waits for memory, a client that has sent less than kPayloadMin of a
// payload in kPayloadTime is disconnected.
//
// Replies are sent at the end of a turn, all ready ones in one message. The kernel sends payload
// in a file directly from there, as much as the socket accepts; the rest follows when it accepts
// more.
//
// TLS. A client that asks for TLS gets one more answer in plain text; from then on received bytes
// pass through a TlsSession before they are used, and replies before they are sent: payload that
// was encrypted is given back, and at most kTlsBatch of it waits for the socket. Bytes that follow
// the request for TLS must be TLS. The handshake is done by another thread (handshakes.h);
// during that time nothing is received or encrypted.
//
// Closing. Queued requests are withdrawn from the Gate without a charge, and decided ones that have
// not been started get their tokens back; requests in a store or the kernel must complete first,
// because they use our buffers. Then the connection is_over() and may be deleted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weir/base/ring.h"
#include "weir/classify/attributes.h"
#include "weir/host/fd.h"
#include "weir/host/io_loop.h"
#include "weir/host/tls.h"
#include "weir/schedule/outcome.h"
#include "weir/serve/client_identity.h"
#include "weir/serve/loop_context.h"
#include "weir/serve/protocol.h"
#include "weir/serve/session.h"
#include "weir/serve/upstream.h"

namespace weir::serve {

class Connection final : private SessionPort, private Upstream::Owner {
 public:
  // One receive, kRequestsFree requests, a guaranteed buffer (or the state of a handshake), the
  // vectors of a message, and this object.
  static constexpr std::uint64_t kConnectionReserve = std::uint64_t{96} << 10;
  // The state of GnuTLS, the start of a record, and one record of replies.
  static constexpr std::uint64_t kTlsReserve = std::uint64_t{64} << 10;
  static constexpr std::uint32_t kRequestsFree = 32;
  // 6.5 kB/s: slower than any network used for storage.
  static constexpr Nanoseconds kPayloadTime = std::chrono::seconds{10};
  static constexpr std::uint32_t kPayloadMin = std::uint32_t{1} << 16;

  // Sends the greeting. REQUIRES: context and protocol outlive it; kConnectionReserve was reserved,
  // which it gives back at the end.
  Connection(LoopContext& context, const ProtocolKind& protocol, host::Fd socket,
             const ClientIdentity& identity);
  // REQUIRES: is_over().
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_shaking_hands() const { return state_ == State::kHandshake; }
  Instant handshake_ends() const { return handshake_ends_; }
  // Its handshake took too long.
  void expire();
  // Stops reading; accepted requests are answered, then it closes.
  void end();
  void close();
  bool is_over() const;
  // It is closed, and over as soon as its store has completed its requests.
  bool waits_for_store() const;
  // Number of requests in stores, by export.
  void count_working(std::map<const ServedExport*, std::uint64_t>& counts) const;

  // The Gate dispatches one of its requests.
  void run(PendingRequest& request);
  // Lets its session perform a request that waited for this turn.
  void perform(PendingRequest& request);
  // Continues a request that was kept because the store hung (store_watch.h), or tries it while the
  // store hangs.
  void run_kept(PendingRequest& request);
  void try_kept(PendingRequest& request);
  // The store hangs and has not completed the request: other requests get its slot.
  void give_up(PendingRequest& request);
  // Sends all ready replies.
  void flush();
  // There may be memory or room again.
  void resume();
  // Disconnects unless its payload arrives. REQUIRES: it is in LoopContext::payloads, marked
  // kPayloadTime ago.
  void check_payload();
  // Its session asked for this time.
  void wake();
  // It is its turn among connections that sent more requests than a turn reads (intake.h).
  void go_on_reading();

  // Frees requests whose last call has reached their Target.
  void free_called();
  // The other thread is done with the handshake for now.
  void shaken();

  RingLink<Connection> all_link;        // the Loop's
  RingLink<Connection> handshake_link;  // the Loop's

 private:
  enum class State : std::uint8_t { kHandshake, kOpen, kEnding, kClosed };
  using Input = Session::Input;
  // Beyond this size of unsent replies no more data is read, because it would have left the cache
  // before it is sent.
  static constexpr std::uint64_t kUnsentMax = 1U << 21;
  struct Io : host::Operation {
    Connection* connection = nullptr;
    bool is_pending = false;
  };
  // State that only the handshake needs.
  struct Greeting {
    std::vector<std::byte> out;      // to be sent
    std::vector<std::byte> sending;  // being sent
  };

  // ---- SessionPort ----
  std::size_t export_count() const override;
  const ExportFacts& export_at(std::size_t index) const override;
  const ExportFacts* find_export(std::string_view name) const override;
  void open(const ExportFacts& facts, OpenedExport& opened) override;
  Result<Attributes> identify(const Claims& claims) override;
  TlsOptions::Mode tls() const override { return context_.options.tls.mode; }
  void extents(const OpenedExport& opened, std::uint64_t offset, std::uint64_t length,
               const Store::ExtentVisitor& visit) const override;
  Nanoseconds expected_wait(const IoRequest& request) const override;
  void answer(std::uint64_t id, const OwnResult& result) override;
  Ends ends() const override;
  void set_ends(const Ends& ends) override;
  void connect(const ServerAddress& server, const UpstreamSource& source) override;
  void transfer() override { mark_dirty(); }
  std::size_t send_to_client(std::span<const std::byte> piece) override;
  std::size_t send_to_server(std::span<const std::byte> piece) override;
  bool hold(std::size_t bytes) override;
  bool has_room(std::size_t bytes) const override;
  void release(std::size_t bytes) override;
  Instant now() const override { return context_.now; }
  void wake_at(Instant when) override;
  void note(std::string_view text) override;
  void hang_up() override;

  // ---- Upstream::Owner ----
  void upstream_received(std::span<const std::byte> bytes) override;
  bool takes_large_pieces() const override { return session_->takes_large_pieces(); }
  void upstream_sent() override;
  void upstream_ended(const std::string& reason) override;
  void upstream_over() override { settle(); }

  void receive_streamed();
  bool is_visible(const ServedExport& served) const;

  // ---- bytes in ----
  void receive();
  static void received(host::Operation& io, const host::Completion& completion);
  void feed(Input in);
  void use(Input in);
  void shake(Input& in);
  void begin_tls();
  void decrypt(Input in);
  void read_decrypted();
  void tls_failed();
  void go_on_shaking();
  void use_rest();
  void read_requests(Input& in);
  bool take_event(Input& in);
  bool begin_request(PendingRequest& request);
  bool has_room_for_request() const;
  bool give_payload_memory();
  void take_payload(Input& in);
  void note_starved(std::size_t bytes);
  void mark_payload();
  void judge_payload();
  // Its payload has arrived, or is no longer needed.
  PendingRequest& end_payload();
  void admit(PendingRequest& request);
  void broken();
  // Its session returned an invalid result.
  void fault(std::string_view what);

  // ---- through the store ----
  Dispatcher& dispatcher_of(const PendingRequest& request) const;
  // It may run but cannot yet: other requests get its slot meanwhile.
  void defer(PendingRequest& request);
  // It can run now, as soon as there is a slot.
  void resume(PendingRequest& request);
  // It is no longer needed and has not run.
  void drop(PendingRequest& request);
  // Reports to the Target that it has ended, if it holds a slot. Counted: also in the accounts of
  // its export.
  enum class Counted : std::uint8_t { kNo, kYes };
  void leave_slot(PendingRequest& request, const Outcome& outcome = {},
                  Counted counted = Counted::kNo);
  void run_unless_hung(PendingRequest& request);
  void run_at_store(PendingRequest& request);
  void start(PendingRequest& request);
  static void finished(StoreOperation& operation);
  void finish(PendingRequest& request);
  bool take_reply_memory(PendingRequest& request);
  void run_own(PendingRequest& request);
  void forget_performed();
  void reply(PendingRequest& request);
  void reply_error(PendingRequest& request);
  void note_store_error(const PendingRequest& request, int error);

  // ---- bytes out ----
  void send_greeting();
  void send_replies();
  void send_files();
  void await_room();
  void send_one(std::span<const std::byte> bytes);
  void flush_gateway();
  bool flush_to_client();
  void send_encrypted();
  void encrypt_replies();
  void end_tls_batch();
  static void sent(host::Operation& io, const host::Completion& completion);
  bool has_more_to_send() const;
  void drop_sent(std::size_t bytes);
  void release_sent(std::size_t bytes);

  PendingRequest& new_request();
  void release(PendingRequest& request);
  void release_all(PendingRequestList& requests);
  void mark_dirty();
  // Waits for memory, possibly held by others: resumed when any is freed.
  void mark_waiting();
  // Waits for its own client to receive replies: resumed when some are sent; costs nothing
  // until then.
  void mark_stalled();
  void count_wait();
  // One of the two.
  void wait_for_room();
  // Closes if it is ending and done, and notifies the context when it is over.
  void settle();

  LoopContext& context_;
  const ProtocolKind& protocol_;
  host::Fd socket_;
  ClientIdentity identity_;
  State state_ = State::kHandshake;
  bool is_dirty_ = false;
  bool is_waiting_ = false;
  bool is_stalled_ = false;
  bool is_in_line_ = false;       // of LoopContext::intake
  bool is_wait_counted_ = false;  // in Counters::memory_waits
  bool is_told_over_ = false;
  bool polls_ = false;         // the pending receive only waits for data
  bool is_direct_ = false;     // the pending receive goes to a request's own buffer
  bool lacks_memory_ = false;  // for the payload of writing_
  bool awaits_room_ = false;   // the pending send waits for room in the socket
  bool is_counted_ = false;    // the pending receive was cancelled to find out how much has arrived
  std::uint32_t unanswered_ = 0;
  std::uint32_t payload_left_ = 0;  // of writing_
  std::uint64_t began_ = 0;         // number of requests so far
  std::uint64_t unsent_ = 0;        // payload of replies that are ready
  Instant handshake_ends_;
  IncomingPayload payload_;  // of writing_
  Io receive_;
  Io send_;
  std::unique_ptr<Greeting> greeting_;
  std::unique_ptr<host::TlsSession> tls_;
  TlsJob tls_job_;
  bool is_shaking_tls_ = false;  // another thread has tls_ and tls_job_
  bool has_said_end_ = false;    // end of the TLS session was sent
  bool has_tls_batch_ = false;   // a batch is charged
  MemoryAccount memory_;
  bool hangs_up_ = false;  // when the last bytes for the client are sent
  Alarm alarm_;            // of the session
  std::unique_ptr<Session> session_;
  std::unique_ptr<Ends> ends_;          // unless they are those of the socket
  std::unique_ptr<Upstream> upstream_;  // of a gateway; uses queues of the session
  std::vector<std::byte> rest_;         // received bytes that could not be used yet
  PendingRequest* writing_ = nullptr;   // its payload is being received
  std::uint32_t sent_of_first_ = 0;
  PendingRequestList queued_;
  PendingRequestList parked_;
  PendingRequestList kept_;  // the store hangs
  PendingRequestList working_;
  PendingRequestList replies_;
  PendingRequestList sending_;
  PendingRequestList called_;  // can be freed when their last call has reached the Target
};

}  // namespace weir::serve
