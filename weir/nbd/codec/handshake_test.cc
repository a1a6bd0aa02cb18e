// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/codec/handshake.h"

#include <optional>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir::nbd {
namespace {

// ---- bytes of a client ----

std::string number(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string client_flags(std::uint32_t flags = 3) { return number(flags, 4); }

std::string option(std::uint32_t code, const std::string& body = "") {
  return "IHAVEOPT" + number(code, 4) + number(body.size(), 4) + body;
}
std::string option(Option code, const std::string& body = "") {
  return option(static_cast<std::uint32_t>(code), body);
}

std::string asking(const std::string& name, const std::vector<Item>& items = {}) {
  std::string body = number(name.size(), 4) + name + number(items.size(), 2);
  for (const Item item : items) body += number(static_cast<std::uint16_t>(item), 2);
  return body;
}

std::string querying(const std::string& name, const std::vector<std::string>& queries) {
  std::string body = number(name.size(), 4) + name + number(queries.size(), 4);
  for (const std::string& query : queries) body += number(query.size(), 4) + query;
  return body;
}

// ---- bytes of a server ----

std::string reply(Option code, OptionReply type, const std::string& body = "") {
  return number(kOptionReplyMagic, 8) + number(static_cast<std::uint32_t>(code), 4) +
         number(static_cast<std::uint32_t>(type), 4) + number(body.size(), 4) + body;
}
std::string ack(Option code) { return reply(code, OptionReply::kAck); }
std::string item(Option code, Item type, const std::string& body) {
  return reply(code, OptionReply::kInfo, number(static_cast<std::uint16_t>(type), 2) + body);
}

constexpr std::uint16_t kStoreFlags = kSendFlush | kSendFua | kSendTrim;
std::string size_and_flags(unsigned more_flags = 0) {
  return number(1U << 20, 8) + number(kStoreFlags | kHasFlags | more_flags, 2);
}

// ---- an owner with two exports that records all events ----

struct Owner {
  Tls tls = Tls::kOff;
  bool extended_headers = false;
  BlockSizes blocks = {};
  bool requires_block_sizes = false;
  bool reports_allocation = true;
  bool lists = true;
};

struct Record {
  std::vector<std::string> events;
  std::string sent;
  std::string left;  // of the client's bytes
  std::optional<Session> session;
  Next last = Next::kGoOn;

  bool operator==(const Record&) const = default;
};

template <class Shaker>
class ConversationWith {
 public:
  explicit ConversationWith(const Owner& owner)
      : owner_(owner),
        handshake_(Offers{.tls = owner.tls, .extended_headers = owner.extended_headers}) {}

  // False when no more bytes may be fed.
  bool feed(std::string_view bytes) {
    std::span<const std::byte> in = std::as_bytes(std::span(bytes));
    for (;;) {
      const Handshake::Event event = handshake_.next(in, out_);
      const bool needs_bytes = std::holds_alternative<NeedBytes>(event);
      if (needs_bytes) {
        EXPECT_TRUE(in.empty());
        return true;
      }
      record_.last = answer(event);
      if (record_.last != Next::kGoOn) {
        record_.left.assign(bytes.substr(bytes.size() - in.size()));
        return false;
      }
    }
  }

  Record record() {
    record_.sent.assign(reinterpret_cast<const char*>(out_.data()), out_.size());
    if (record_.last == Next::kTransmission) record_.session = handshake_.session();
    return record_;
  }

 private:
  Next answer(const Handshake::Event& event) {
    if (const auto* want = std::get_if<WantExport>(&event)) {
      const char* purposes[] = {"go ", "name ", "info ", "list ", "set "};
      record_.events.push_back(purposes[static_cast<std::size_t>(want->purpose)] +
                               std::string(want->name));
      if (want->name == "guarded") {
        return handshake_.refuse(OptionReply::kErrPolicy, "not for you", out_);
      }
      if (want->name != "scratch" && want->name != "other") {
        return handshake_.refuse(OptionReply::kErrUnknown, "", out_);
      }
      return handshake_.accept({.size = 1U << 20,
                                .flags = kStoreFlags,
                                .blocks = owner_.blocks,
                                .reports_allocation = owner_.reports_allocation,
                                .requires_block_sizes = owner_.requires_block_sizes,
                                .name = want->name,
                                .description = "free for all"},
                               out_);
    }
    if (std::holds_alternative<WantList>(event)) {
      record_.events.emplace_back("list");
      if (!owner_.lists) return handshake_.refuse(OptionReply::kErrPolicy, "", out_);
      handshake_.list("scratch", "free for all", out_);
      handshake_.list("other", "", out_);
      return handshake_.end_list(out_);
    }
    if (std::holds_alternative<WantTls>(event)) {
      record_.events.emplace_back("tls");
      return handshake_.start_tls(out_);
    }
    if (const auto* broken = std::get_if<Break>(&event)) {
      record_.events.push_back("break: " + std::string(describe(broken->reason)));
    } else {
      record_.events.emplace_back("abort");
    }
    return Next::kClose;
  }

  Owner owner_;
  Shaker handshake_;
  Handshake::Output out_;
  Record record_;
};
using Conversation = ConversationWith<Handshake>;

Record talk(std::string_view bytes, const Owner& owner = {}) {
  Conversation conversation(owner);
  conversation.feed(bytes);
  return conversation.record();
}

std::string broken(BreakReason reason) { return "break: " + std::string(describe(reason)); }

using Events = std::vector<std::string>;

// ---- handshakes ----

TEST(Handshake, GreetsAsAFixedNewstyleServer) {
  Handshake::Output out;
  Handshake({}).greet(out);
  const std::string sent(reinterpret_cast<const char*>(out.data()), out.size());
  EXPECT_EQ(sent, "NBDMAGICIHAVEOPT" + number(3, 2));
}

TEST(Handshake, GoDescribesTheExportAndEntersTransmission) {
  const Record record = talk(client_flags() + option(Option::kGo, asking("scratch")) + "rest");
  EXPECT_EQ(record.events, Events{"go scratch"});
  EXPECT_EQ(record.sent, item(Option::kGo, Item::kExport, size_and_flags()) + ack(Option::kGo));
  EXPECT_EQ(record.last, Next::kTransmission);
  EXPECT_EQ(record.left, "rest") << "for the next phase";
  EXPECT_EQ(record.session, (Session{.size = 1U << 20, .flags = kStoreFlags | kHasFlags}));
}

TEST(Handshake, InfoTellsTheSameAndMore) {
  const std::vector<Item> all = {Item::kDescription, Item::kBlockSize, Item::kName, Item::kName};
  const Record record = talk(client_flags() + option(Option::kInfo, asking("scratch", all)));
  EXPECT_EQ(record.events, Events{"info scratch"});
  EXPECT_EQ(
      record.sent,
      item(Option::kInfo, Item::kBlockSize, number(1, 4) + number(4096, 4) + number(1U << 25, 4)) +
          item(Option::kInfo, Item::kExport, size_and_flags()) +
          item(Option::kInfo, Item::kName, "scratch") +
          item(Option::kInfo, Item::kDescription, "free for all") + ack(Option::kInfo));
  EXPECT_EQ(record.last, Next::kGoOn);
}

TEST(Handshake, ItemsNobodyKnowsAreIgnored) {
  const std::string body = asking("scratch", {static_cast<Item>(4), static_cast<Item>(65535)});
  EXPECT_EQ(talk(client_flags() + option(Option::kInfo, body)).sent,
            item(Option::kInfo, Item::kExport, size_and_flags()) + ack(Option::kInfo));
}

TEST(Handshake, ExportNameIsAnsweredWithZeroesUnlessTheClientWantsNone) {
  const Record padded = talk(client_flags(1) + option(Option::kExportName, "scratch"));
  EXPECT_EQ(padded.sent, size_and_flags() + std::string(124, '\0'));
  EXPECT_EQ(padded.last, Next::kTransmission);
  EXPECT_EQ(padded.events, Events{"name scratch"});
  const Record plain = talk(client_flags(3) + option(Option::kExportName, "scratch"));
  EXPECT_EQ(plain.sent, size_and_flags());
  const Record oldest = talk(client_flags(0) + option(Option::kExportName, "scratch"));
  EXPECT_EQ(oldest.last, Next::kTransmission) << "newstyle that is not fixed";
}

TEST(Handshake, TheEmptyNameIsANameLikeOthers) {
  EXPECT_EQ(talk(client_flags() + option(Option::kGo, asking(""))).events, Events{"go "});
  EXPECT_EQ(talk(client_flags() + option(Option::kExportName, "")).events, Events{"name "});
}

TEST(Handshake, ARefusalSaysWhyAndTheClientMayGoOn) {
  const Record record =
      talk(client_flags() + option(Option::kGo, asking("guarded")) +
           option(Option::kGo, asking("nothing")) + option(Option::kGo, asking("scratch")));
  EXPECT_EQ(record.events, (Events{"go guarded", "go nothing", "go scratch"}));
  EXPECT_EQ(record.sent, reply(Option::kGo, OptionReply::kErrPolicy, "not for you") +
                             reply(Option::kGo, OptionReply::kErrUnknown) +
                             item(Option::kGo, Item::kExport, size_and_flags()) + ack(Option::kGo));
  EXPECT_EQ(record.last, Next::kTransmission);
}

TEST(Handshake, ExportNameKnowsNoErrorSoTheConnectionEnds) {
  const Record record = talk(client_flags() + option(Option::kExportName, "guarded"));
  EXPECT_EQ(record.events, Events{"name guarded"});
  EXPECT_EQ(record.last, Next::kClose);
  EXPECT_EQ(record.sent, "");
}

TEST(Handshake, ListsNamesWithTheirDescriptions) {
  const Record record = talk(client_flags() + option(Option::kList));
  EXPECT_EQ(record.sent,
            reply(Option::kList, OptionReply::kServer, number(7, 4) + "scratchfree for all") +
                reply(Option::kList, OptionReply::kServer, number(5, 4) + "other") +
                ack(Option::kList));
  EXPECT_EQ(talk(client_flags() + option(Option::kList), {.lists = false}).sent,
            reply(Option::kList, OptionReply::kErrPolicy));
}

TEST(Handshake, AnAbortIsAcknowledgedWhateverComesWithIt) {
  const Record record = talk(client_flags() + option(Option::kAbort, "why not") + "x");
  EXPECT_EQ(record.events, Events{"abort"});
  EXPECT_EQ(record.sent, ack(Option::kAbort));
  EXPECT_EQ(talk(client_flags() + option(Option::kAbort, std::string(20'000, 'x'))).events,
            Events{"abort"});
}

TEST(Handshake, StructuredRepliesBringTheFlagDf) {
  const Record record = talk(client_flags() + option(Option::kStructuredReply) +
                             option(Option::kGo, asking("scratch")));
  EXPECT_EQ(record.sent, ack(Option::kStructuredReply) +
                             item(Option::kGo, Item::kExport, size_and_flags(kSendDf)) +
                             ack(Option::kGo));
  EXPECT_TRUE(record.session->structured);
  EXPECT_FALSE(record.session->allocation);
}

// ---- metadata contexts ----

std::string context(Option code, std::uint32_t id) {
  return reply(code, OptionReply::kMetaContext, number(id, 4) + "base:allocation");
}

std::string after_structured(const Record& record) {
  return record.sent.substr(ack(Option::kStructuredReply).size());
}

TEST(Handshake, ContextsAreListedByNoneByWildcardAndByName) {
  constexpr Option kOption = Option::kListMetaContext;
  const auto list = [](const std::vector<std::string>& queries) {
    return after_structured(talk(client_flags() + option(Option::kStructuredReply) +
                                 option(kOption, querying("scratch", queries))));
  };
  const std::string one = context(kOption, 0) + ack(kOption);
  EXPECT_EQ(list({}), one);
  EXPECT_EQ(list({"base:"}), one);
  EXPECT_EQ(list({"base:allocation", "base:", "base:allocation"}), one);
  EXPECT_EQ(list({"base:depth", "qemu:", "x"}), ack(kOption));
}

TEST(Handshake, ContextsAreChosenByNameOnly) {
  constexpr Option kOption = Option::kSetMetaContext;
  const auto set = [](const std::vector<std::string>& queries) {
    return talk(client_flags() + option(Option::kStructuredReply) +
                option(kOption, querying("scratch", queries)) +
                option(Option::kGo, asking("scratch")));
  };
  const Record chosen = set({"qemu:dirty-bitmap:x", "base:allocation"});
  EXPECT_TRUE(after_structured(chosen).starts_with(context(kOption, 1) + ack(kOption)));
  EXPECT_TRUE(chosen.session->allocation);
  EXPECT_FALSE(set({}).session->allocation);
  EXPECT_FALSE(set({"base:"}).session->allocation);
}

TEST(Handshake, AChoiceHoldsForItsExportUntilTheNextOne) {
  const std::string chosen =
      client_flags() + option(Option::kStructuredReply) +
      option(Option::kSetMetaContext, querying("scratch", {"base:allocation"}));
  const auto allocation = [&](const std::string& more) {
    return talk(chosen + more).session->allocation;
  };
  const std::string go = option(Option::kGo, asking("scratch"));
  EXPECT_TRUE(allocation(go));
  EXPECT_TRUE(allocation(option(Option::kExportName, "scratch")));
  EXPECT_FALSE(allocation(option(Option::kGo, asking("other"))));
  EXPECT_TRUE(allocation(option(Option::kListMetaContext, querying("other", {})) + go));
  EXPECT_FALSE(allocation(option(Option::kSetMetaContext, querying("scratch", {})) + go));
  EXPECT_FALSE(allocation(option(Option::kSetMetaContext, querying("nothing", {})) + go));
  EXPECT_FALSE(allocation(option(Option::kSetMetaContext, "short") + go)) << "a failure clears too";
}

TEST(Handshake, AStoreThatCannotTellHasNoContext) {
  const Record record =
      talk(client_flags() + option(Option::kStructuredReply) +
               option(Option::kSetMetaContext, querying("scratch", {"base:allocation"})) +
               option(Option::kGo, asking("scratch")),
           {.reports_allocation = false});
  EXPECT_FALSE(record.session->allocation);
  EXPECT_TRUE(after_structured(record).starts_with(ack(Option::kSetMetaContext)));
}

// ---- block sizes ----

TEST(Handshake, AnExportThatRequiresItsBlockSizesRefusesWhoDoesNotAsk) {
  const Owner owner = {.blocks = {512, 4096, 1U << 20}, .requires_block_sizes = true};
  const std::string sizes =
      item(Option::kGo, Item::kBlockSize, number(512, 4) + number(4096, 4) + number(1U << 20, 4));
  const Record silent = talk(client_flags() + option(Option::kGo, asking("scratch")), owner);
  EXPECT_EQ(silent.last, Next::kGoOn);
  EXPECT_EQ(silent.sent,
            sizes + reply(Option::kGo, OptionReply::kErrBlockSizeReqd, "request the block sizes"));
  const Record asked =
      talk(client_flags() + option(Option::kGo, asking("scratch", {Item::kBlockSize})), owner);
  EXPECT_EQ(asked.last, Next::kTransmission);
  EXPECT_TRUE(asked.sent.starts_with(sizes));
  EXPECT_EQ(asked.session->blocks, owner.blocks);
  const Record old = talk(client_flags() + option(Option::kExportName, "scratch"), owner);
  EXPECT_EQ(old.last, Next::kClose);
}

// ---- extended headers ----

constexpr Owner kExtended = {.extended_headers = true};

TEST(Handshake, ExtendedHeadersAreUnknownUnlessTheyAreOffered) {
  EXPECT_EQ(talk(client_flags() + option(Option::kExtendedHeaders)).sent,
            reply(Option::kExtendedHeaders, OptionReply::kErrUnsup));
  const Record record = talk(client_flags() + option(Option::kGo, asking("scratch")), kExtended);
  EXPECT_FALSE(record.session->extended) << "nobody asked";
  EXPECT_FALSE(record.session->structured);
}

TEST(Handshake, ExtendedHeadersBringChunksAndContexts) {
  const Record record =
      talk(client_flags() + option(Option::kExtendedHeaders) +
               option(Option::kSetMetaContext, querying("scratch", {"base:allocation"})) +
               option(Option::kGo, asking("scratch")),
           kExtended);
  EXPECT_TRUE(record.sent.starts_with(ack(Option::kExtendedHeaders)));
  EXPECT_TRUE(record.session->extended);
  EXPECT_TRUE(record.session->structured);
  EXPECT_TRUE(record.session->allocation);
  EXPECT_NE(record.session->flags & kSendDf, 0);
}

TEST(Handshake, ExtendedHeadersTakePrecedenceOverStructuredReplies) {
  const Record record =
      talk(client_flags() + option(Option::kStructuredReply) + option(Option::kExtendedHeaders) +
               option(Option::kStructuredReply) + option(Option::kGo, asking("scratch")),
           kExtended);
  EXPECT_TRUE(
      record.sent.starts_with(ack(Option::kStructuredReply) + ack(Option::kExtendedHeaders) +
                              reply(Option::kStructuredReply, OptionReply::kErrExtHeaderReqd,
                                    "extended headers were negotiated")));
  EXPECT_TRUE(record.session->extended);
}

TEST(Handshake, ExtendedHeadersTakeNoDataAndAreForgottenWithTls) {
  EXPECT_EQ(talk(client_flags() + option(Option::kExtendedHeaders, "x"), kExtended).sent,
            reply(Option::kExtendedHeaders, OptionReply::kErrInvalid, "the option takes no data"));
  const Record record = talk(client_flags() + option(Option::kExtendedHeaders) +
                                 option(Option::kStartTls) + option(Option::kGo, asking("scratch")),
                             {.tls = Tls::kOffered, .extended_headers = true});
  EXPECT_FALSE(record.session->extended);
}

TEST(HandshakeBadInput, ExportNameIsNotForExtendedHeaders) {
  EXPECT_EQ(talk(client_flags() + option(Option::kExtendedHeaders) +
                     option(Option::kExportName, "scratch"),
                 kExtended)
                .events,
            Events{broken(BreakReason::kExportName)});
}

// ---- TLS ----

TEST(Handshake, WithoutTlsStartTlsIsAgainstPolicy) {
  EXPECT_EQ(talk(client_flags() + option(Option::kStartTls)).sent,
            reply(Option::kStartTls, OptionReply::kErrPolicy, "TLS is not available"));
}

TEST(Handshake, TlsForgetsWhatWasAgreedOnBefore) {
  const Record record =
      talk(client_flags() + option(Option::kStructuredReply) +
               option(Option::kSetMetaContext, querying("scratch", {"base:allocation"})) +
               option(Option::kStartTls) + option(Option::kGo, asking("scratch")),
           {.tls = Tls::kOffered});
  EXPECT_EQ(record.events, (Events{"set scratch", "tls", "go scratch"}));
  EXPECT_FALSE(record.session->structured);
  EXPECT_FALSE(record.session->allocation);
}

TEST(Handshake, TlsIsStartedOnce) {
  const Record record = talk(client_flags() + option(Option::kStartTls) + option(Option::kStartTls),
                             {.tls = Tls::kOffered});
  EXPECT_EQ(record.events, Events{"tls"});
  EXPECT_EQ(record.sent, ack(Option::kStartTls) + reply(Option::kStartTls, OptionReply::kErrInvalid,
                                                        "TLS is already on"));
  EXPECT_EQ(talk(client_flags() + option(Option::kStartTls, "x"), {.tls = Tls::kOffered}).sent,
            reply(Option::kStartTls, OptionReply::kErrInvalid, "the option takes no data"));
}

TEST(Handshake, WhereTlsIsRequiredNothingElseIsHeardBeforeIt) {
  const Owner owner = {.tls = Tls::kRequired};
  const std::string refused_go = reply(Option::kGo, OptionReply::kErrTlsReqd, "TLS is required");
  const Record record = talk(client_flags() + option(Option::kGo, asking("scratch")) +
                                 option(Option::kStartTls) + option(Option::kGo, asking("scratch")),
                             owner);
  EXPECT_EQ(record.events, (Events{"tls", "go scratch"}));
  EXPECT_TRUE(record.sent.starts_with(refused_go + ack(Option::kStartTls)));
  EXPECT_EQ(record.last, Next::kTransmission);

  EXPECT_EQ(talk(client_flags() + option(Option::kExportName, "scratch"), owner).events,
            Events{broken(BreakReason::kTlsRequired)});
  EXPECT_EQ(talk(client_flags() + option(Option::kAbort), owner).events, Events{"abort"});
  EXPECT_EQ(talk(client_flags() + option(77), owner).sent,
            reply(static_cast<Option>(77), OptionReply::kErrTlsReqd, "TLS is required"));
}

// ---- bad input ----

TEST(HandshakeBadInput, UnknownClientFlagsBreakTheConnection) {
  for (const std::uint32_t flags : {4U, 7U, 0x8000'0000U}) {
    const Record record = talk(client_flags(flags) + option(Option::kList));
    EXPECT_EQ(record.events, Events{broken(BreakReason::kClientFlags)});
    EXPECT_EQ(record.sent, "");
  }
}

TEST(HandshakeBadInput, AWrongMagicNumberBreaksTheConnection) {
  const Record record = talk(client_flags() + "IHAVEOPS" + number(3, 4) + number(0, 4));
  EXPECT_EQ(record.events, Events{broken(BreakReason::kNotAnOption)});
  EXPECT_EQ(talk("GET / HTTP/1.1\r\nHost: x\r\n\r\n").events,
            Events{broken(BreakReason::kClientFlags)});
}

TEST(HandshakeBadInput, OptionsOfTheFixedStyleNeedItsFlag) {
  EXPECT_EQ(talk(client_flags(0) + option(Option::kGo, asking("scratch"))).events,
            Events{broken(BreakReason::kNotFixed)});
}

TEST(HandshakeBadInput, UnknownOptionsArePassedOver) {
  for (const std::uint32_t code : {0U, 4U, 11U, 0xffff'ffffU}) {
    const Record record = talk(client_flags() + option(code, std::string(100, 'x')) +
                               option(Option::kStructuredReply));
    EXPECT_EQ(record.sent, reply(static_cast<Option>(code), OptionReply::kErrUnsup) +
                               ack(Option::kStructuredReply));
  }
}

TEST(HandshakeBadInput, OptionsThatAreTooLongArePassedOver) {
  const std::string body(kOptionBytesMax + 1, 'x');
  const Record record = talk(client_flags() + option(Option::kGo, body) + option(Option::kList));
  EXPECT_TRUE(record.sent.starts_with(
      reply(Option::kGo, OptionReply::kErrTooBig, "the option is too long")));
  EXPECT_EQ(record.events, Events{"list"});
  EXPECT_EQ(talk(client_flags() + option(99, body)).sent,
            reply(static_cast<Option>(99), OptionReply::kErrUnsup));
}

TEST(HandshakeBadInput, LengthsNobodyCouldMeanBreakTheConnectionAtOnce) {
  const std::string head = client_flags() + "IHAVEOPT" + number(7, 4);
  EXPECT_EQ(talk(head + number(0xffff'ffff, 4)).events, Events{broken(BreakReason::kTooManyBytes)});
  EXPECT_EQ(talk(head + number(kHandshakeBytesMax + 1, 4)).events,
            Events{broken(BreakReason::kTooManyBytes)});
  EXPECT_EQ(talk(head + number(kHandshakeBytesMax, 4)).events, Events{});
}

TEST(HandshakeBadInput, AllOptionsTogetherHaveABound) {
  std::string bytes = client_flags();
  const std::string half = option(99, std::string(kHandshakeBytesMax / 2, 'x'));
  bytes += half;
  EXPECT_EQ(talk(bytes + half).events, Events{});
  EXPECT_EQ(talk(bytes + half + option(99, "x")).events,
            Events{broken(BreakReason::kTooManyBytes)});
}

TEST(HandshakeBadInput, AFloodOfOptionsIsBrokenOff) {
  std::string bytes = client_flags();
  for (std::uint32_t i = 0; i < kOptionsMax; ++i) bytes += option(Option::kStructuredReply);
  EXPECT_EQ(talk(bytes).events, Events{});
  const Record record = talk(bytes + option(Option::kList));
  EXPECT_EQ(record.events, Events{broken(BreakReason::kTooManyOptions)});
  EXPECT_EQ(record.sent.size(), kOptionsMax * ack(Option::kStructuredReply).size());
}

TEST(HandshakeBadInput, NamesKeepTheRulesForStrings) {
  const std::string long_name(kStringMax, 'n');
  EXPECT_EQ(talk(client_flags() + option(Option::kGo, asking(long_name))).events,
            Events{"go " + long_name});
  const std::string no_name =
      reply(Option::kGo, OptionReply::kErrInvalid, "the export name is not valid");
  EXPECT_EQ(talk(client_flags() + option(Option::kGo, asking(long_name + "n"))).sent, no_name);
  const std::string with_zero = std::string("scr\0tch", 7);
  EXPECT_EQ(talk(client_flags() + option(Option::kGo, asking(with_zero))).sent, no_name);
  EXPECT_EQ(talk(client_flags() + option(Option::kExportName, long_name)).events,
            Events{"name " + long_name});
  for (const std::string& name : {long_name + "n", with_zero}) {
    EXPECT_EQ(talk(client_flags() + option(Option::kExportName, name)).events,
              Events{broken(BreakReason::kExportName)});
  }
}

TEST(HandshakeBadInput, LengthsThatLieAreInvalid) {
  const std::string good = asking("scratch", {Item::kName});
  for (const std::string& body :
       {std::string(), std::string("abc"), good + "x", good.substr(0, good.size() - 1),
        number(0xffff'ffff, 4) + good.substr(4), number(8, 4) + good.substr(4)}) {
    EXPECT_EQ(talk(client_flags() + option(Option::kGo, body)).sent,
              reply(Option::kGo, OptionReply::kErrInvalid,
                    "the lengths within the option are inconsistent"));
  }
  const std::string query = querying("scratch", {"base:allocation"});
  for (const std::string& body :
       {std::string(), query + "x", query.substr(0, query.size() - 1),
        number(7, 4) + "scratch" + number(0xffff'ffff, 4),
        number(7, 4) + "scratch" + number(1, 4) + number(0xffff'ffff, 4) + "base:"}) {
    const Record record = talk(client_flags() + option(Option::kStructuredReply) +
                               option(Option::kSetMetaContext, body));
    EXPECT_EQ(after_structured(record), reply(Option::kSetMetaContext, OptionReply::kErrInvalid,
                                              "the lengths within the option are inconsistent"));
    EXPECT_EQ(record.events, Events{}) << "the owner never hears of it";
  }
}

TEST(HandshakeBadInput, OptionsWithoutDataRefuseIt) {
  for (const Option code : {Option::kList, Option::kStructuredReply}) {
    EXPECT_EQ(talk(client_flags() + option(code, "x")).sent,
              reply(code, OptionReply::kErrInvalid, "the option takes no data"));
  }
}

TEST(HandshakeBadInput, ContextsNeedStructuredReplies) {
  for (const Option code : {Option::kListMetaContext, Option::kSetMetaContext}) {
    EXPECT_EQ(talk(client_flags() + option(code, querying("scratch", {}))).sent,
              reply(code, OptionReply::kErrInvalid, "structured replies must be negotiated first"));
  }
}

TEST(HandshakeDeath, AnswersOutOfTurnAreOurMistake) {
  Handshake handshake({});
  Handshake::Output out;
  EXPECT_DEATH(handshake.accept({}, out), "assertion failed");
  EXPECT_DEATH(handshake.refuse(OptionReply::kErrPolicy, "", out), "assertion failed");
  EXPECT_DEATH((void)handshake.session(), "assertion failed");
}

// ---- recorded from real clients: nbdinfo and nbdcopy 1.14, qemu-img 7.2, nbdsh 1.14 ----

std::string unhex(std::string_view hex) {
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

struct Recording {
  const char* client;
  const char* hex;
  Events events;
  Next last;
  bool structured;
  bool allocation;
};

const std::vector<Recording>& recordings() {
  static const std::vector<Recording> all = {
      {"nbdinfo",
       "0000000349484156454f5054000000080000000049484156454f505400000006000000130000000773637261746"
       "3"
       "68000300030001000249484156454f5054000000090000000f00000007736372617463680000000049484156454"
       "f"
       "5054000000070000001300000007736372617463680003000300010002",
       {"info scratch", "list scratch", "go scratch"},
       Next::kTransmission,
       true,
       false},
      {"nbdinfo --list",
       "0000000349484156454f5054000000080000000049484156454f5054000000030000000049484156454f5054000"
       "0"
       "0006000000130000000773637261746368000300030001000249484156454f5054000000090000000f000000077"
       "3"
       "6372617463680000000049484156454f50540000000600000012000000067365637265740003000300010002494"
       "8"
       "4156454f5054000000070000001200000006736563726574000300030001000249484156454f505400000002000"
       "0"
       "0000",
       {"list", "info scratch", "list scratch", "info secret", "go secret", "abort"},
       Next::kClose,
       false,
       false},
      {"nbdcopy",
       "0000000349484156454f5054000000080000000049484156454f5054000000070000000f0000000773637261746"
       "3"
       "6800010003",
       {"go scratch"},
       Next::kTransmission,
       true,
       false},
      {"qemu-img",
       "0000000349484156454f5054000000080000000049484156454f50540000000a000000220000000773637261746"
       "3"
       "68000000010000000f626173653a616c6c6f636174696f6e49484156454f5054000000070000000f00000007736"
       "3"
       "726174636800010003",
       {"set scratch", "go scratch"},
       Next::kTransmission,
       true,
       true},
      {"nbdsh without handshake flags",
       "0000000049484156454f5054000000010000000773637261746368",
       {"name scratch"},
       Next::kTransmission,
       false,
       false},
  };
  return all;
}

TEST(Handshake, GetsRealClientsThrough) {
  for (const Recording& recording : recordings()) {
    const Record record = talk(unhex(recording.hex));
    EXPECT_EQ(record.events, recording.events) << recording.client;
    EXPECT_EQ(record.last, recording.last) << recording.client;
    EXPECT_EQ(record.left, "") << recording.client;
    if (record.last != Next::kTransmission) continue;
    EXPECT_EQ(record.session->structured, recording.structured) << recording.client;
    EXPECT_EQ(record.session->allocation, recording.allocation) << recording.client;
  }
}

// ---- any split ----

// Mostly valid options, sometimes invalid ones.
std::string some_option(std::uint32_t choice) {
  const std::string names[] = {"scratch", "other", "guarded", ""};
  const std::string& name = names[choice / 16 % 4];
  switch (choice % 16) {
    case 0:
      return option(Option::kStructuredReply);
    case 1:
      return option(Option::kSetMetaContext, querying(name, {"base:allocation", "x:y"}));
    case 2:
      return option(Option::kListMetaContext, querying(name, {}));
    case 3:
      return option(Option::kList);
    case 4:
      return option(Option::kInfo, asking(name, {Item::kName, Item::kBlockSize}));
    case 5:
      return option(Option::kStartTls);
    case 6:
      return option(99, std::string(choice % 300, 'x'));
    case 7:
      return option(Option::kGo, std::string(kOptionBytesMax + choice % 10, 'x'));
    case 8:
      return option(Option::kInfo, "bad");
    case 9:
      return option(Option::kGo, asking("nothing"));
    case 10:
      return choice % 64 < 16 ? option(Option::kAbort) : option(Option::kList, "x");
    case 11:
      return choice % 64 < 16 ? option(Option::kExportName, name) : option(Option::kList);
    case 12:
      return choice % 64 < 16 ? std::string("this is no option at all") : option(5);
    case 13:
      return option(Option::kExtendedHeaders);
    default:
      return option(Option::kGo, asking(name, {Item::kBlockSize}));
  }
}

// In pieces of the given sizes, repeatedly.
template <class Shaker>
Record talk_in_pieces(std::string_view bytes, const std::vector<std::uint8_t>& sizes,
                      const Owner& owner) {
  ConversationWith<Shaker> conversation(owner);
  for (std::size_t i = 0, place = 0; place < bytes.size(); ++i) {
    const std::size_t size = sizes.empty() ? 1 : sizes[i % sizes.size()] % 64 + 1;
    const std::string_view piece = bytes.substr(place, size);
    place += piece.size();
    if (!conversation.feed(piece)) {
      Record record = conversation.record();
      record.left += bytes.substr(place);
      return record;
    }
  }
  return conversation.record();
}

template <class Shaker>
bool splits_agree(std::string_view bytes, const std::vector<std::uint8_t>& sizes,
                  const Owner& owner) {
  const Record whole = talk(bytes, owner);
  return talk_in_pieces<Shaker>(bytes, sizes, owner) == whole &&
         talk_in_pieces<Shaker>(bytes, {}, owner) == whole;
}

RC_GTEST_PROP(HandshakeProperty, AnySplitOfTheBytesGivesTheSameEvents,
              (const std::vector<std::uint32_t>& choices, const std::vector<std::uint8_t>& sizes)) {
  std::string bytes = client_flags(choices.size() % 8 == 7 ? 1 : 3);
  for (const std::uint32_t choice : choices) bytes += some_option(choice);
  const Owner owner = {.tls = static_cast<Tls>(sizes.size() % 3),
                       .extended_headers = sizes.size() % 2 == 0};
  RC_ASSERT(splits_agree<Handshake>(bytes, sizes, owner));
}

// Mistake: an incomplete header of an option is dropped.
struct DropsHalves : Handshake {
  using Handshake::Handshake;
  Event next(Input& in, Output& out) {
    if (in.size() < 4) in = {};
    return Handshake::next(in, out);
  }
};

TEST(HandshakeProperty, TheCheckOfSplitsBites) {
  const std::string bytes = client_flags() + option(Option::kList);
  EXPECT_TRUE(splits_agree<Handshake>(bytes, {6}, {}));
  EXPECT_FALSE(splits_agree<DropsHalves>(bytes, {6}, {}));
}

TEST(Handshake, RealClientsMayComeInAnyTwoPieces) {
  for (const Recording& recording : recordings()) {
    const std::string bytes = unhex(recording.hex);
    const Record whole = talk(bytes);
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
      Conversation conversation({});
      ASSERT_TRUE(conversation.feed(std::string_view(bytes).substr(0, cut)));
      conversation.feed(std::string_view(bytes).substr(cut));
      EXPECT_EQ(conversation.record(), whole) << recording.client << " cut at " << cut;
    }
  }
}

RC_GTEST_PROP(HandshakeProperty, NoBytesCrashIt, (const std::string& bytes)) {
  talk(bytes);
  talk(client_flags() + bytes);
  talk(client_flags() + option(Option::kGo, bytes));
  talk(client_flags() + option(Option::kStructuredReply) + option(Option::kSetMetaContext, bytes));
}

}  // namespace
}  // namespace weir::nbd
