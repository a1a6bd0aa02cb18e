// SPDX-License-Identifier: Apache-2.0
#include "weir/control/records.h"

#include <sstream>

#include <fmt/format.h>

#include "weir/adapt/tree_shares.h"
#include "weir/base/quote.h"
#include "weir/control/job_stats_text.h"
#include "weir/control/journal.h"
#include "weir/host/files.h"
#include "weir/target/tree_levels.h"

namespace weir::control {
namespace {

using Account = Ledger::Account;

tl::unexpected<Error> damaged() {
  return fail(std::errc::illegal_byte_sequence, "records of jobs", "are damaged");
}

std::string print_numbers(const Allocator::State& state) {
  const Ledger::State& ledger = state.ledger;
  return fmt::format("{} {} {} {} {} {} {} {}", ledger.period, ledger.written_off,
                     ledger.half_life ? ledger.half_life->count() : 0, ledger.fade_period.count(),
                     static_cast<std::uint64_t>(ledger.fade_carry >> 64),
                     static_cast<std::uint64_t>(ledger.fade_carry), state.carry, state.carry_of);
}

// Ids and paths, which may be empty.
std::string print_name(std::string_view name) {
  return name.empty() ? "-" : "=" + printable_id(name);
}

bool read_name(std::istringstream& words, std::string& name) {
  std::string word;
  words >> word;
  if (words.fail()) return false;
  if (word == "-") return true;
  const auto id = read_id(std::string_view(word).substr(1));
  if (id) name = *id;
  return id.has_value();
}

std::string account_line(const Account& one) {
  return fmt::format("account {} {} {} {} {} {} {} {} {} {} {} {}", print_name(one.job.text()),
                     one.record, one.remainder, one.allotted, one.last_active, one.fade_remainder,
                     one.lent_remainder, one.borrowed_remainder, one.lent.count(),
                     one.borrowed.count(), one.lent_sum.count(), one.borrowed_sum.count());
}

bool read_numbers(std::istringstream& words, Allocator::State& state) {
  Ledger::State& ledger = state.ledger;
  std::int64_t half_life = 0, fade_period = 0;
  std::uint64_t high = 0, low = 0;
  words >> ledger.period >> ledger.written_off >> half_life >> fade_period >> high >> low >>
      state.carry >> state.carry_of;
  if (words.fail()) return false;
  if (half_life > 0) ledger.half_life = Nanoseconds{half_life};
  ledger.fade_period = Nanoseconds{fade_period};
  ledger.fade_carry = static_cast<unsigned __int128>(high) << 64 | low;
  return true;
}

bool read_service(std::istringstream& words, Records& records) {
  ServiceRecords& one = records.emplace_back();
  words >> one.service;
  return !words.fail() && read_numbers(words, one.state.allocator);
}

bool read_tree(std::istringstream& words, Records& records) {
  if (records.empty()) return false;
  words >> records.back().levels;
  return !words.fail();
}

bool read_node(std::istringstream& words, Records& records) {
  if (records.empty() || records.back().levels.empty()) return false;
  TreeAllocator::State::Node& node = records.back().state.tree.nodes.emplace_back();
  std::string path;
  if (!read_name(words, path)) return false;
  if (!path.empty()) node.path = path_values(path);
  return read_numbers(words, node.allocator);
}

bool read_account(std::istringstream& words, Records& records) {
  if (records.empty()) return false;
  Controller::State& state = records.back().state;
  auto& nodes = state.tree.nodes;
  Ledger::State& ledger = nodes.empty() ? state.allocator.ledger : nodes.back().allocator.ledger;
  std::string job;
  Account one;
  std::uint64_t lent = 0, borrowed = 0, lent_sum = 0, borrowed_sum = 0;
  if (!read_name(words, job)) return false;
  words >> one.record >> one.remainder >> one.allotted >> one.last_active >> one.fade_remainder >>
      one.lent_remainder >> one.borrowed_remainder >> lent >> borrowed >> lent_sum >> borrowed_sum;
  if (words.fail()) return false;
  one.job = JobId(job);
  one.lent = Tokens{lent};
  one.borrowed = Tokens{borrowed};
  one.lent_sum = Tokens{lent_sum};
  one.borrowed_sum = Tokens{borrowed_sum};
  ledger.accounts.push_back(one);
  return true;
}

bool read_line(const std::string& line, Records& records) {
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  if (kind == "service") return read_service(words, records);
  if (kind == "tree") return read_tree(words, records);
  if (kind == "node") return read_node(words, records);
  if (kind == "account") return read_account(words, records);
  return kind == "end";
}

// Empty without a tree.
std::string levels_of(const Target& target) {
  return target.share_levels().empty() ? "" : print_tree_levels(target.share_levels());
}

std::string print_accounts(const Allocator::State& state) {
  std::string text;
  for (const Account& one : state.ledger.accounts) text += journal_line(account_line(one));
  return text;
}

}  // namespace

Records records_of(const serve::Server& server) {
  Records records;
  for (const auto& service : server.services()) {
    const Controller* const controller = service->target.controller();
    if (controller == nullptr) continue;
    records.push_back({service->name, levels_of(service->target), controller->state()});
  }
  return records;
}

std::string print_records(const Records& records) {
  std::string text;
  for (const ServiceRecords& one : records) {
    const Allocator::State& of_jobs = one.state.allocator;
    text += journal_line(fmt::format("service {} {}", one.service, print_numbers(of_jobs)));
    text += print_accounts(of_jobs);
    if (!one.levels.empty()) text += journal_line("tree " + one.levels);
    for (const TreeAllocator::State::Node& node : one.state.tree.nodes) {
      text += journal_line(fmt::format("node {} {}", print_name(path_text(node.path)),
                                       print_numbers(node.allocator)));
      text += print_accounts(node.allocator);
    }
  }
  return text + journal_line("end");
}

Result<Records> parse_records(std::string_view text) {
  const JournalText read = read_journal(text);
  if (read.damaged_at != 0 || read.torn != 0) return damaged();
  if (read.records.empty() || read.records.back() != "end") return damaged();
  Records records;
  for (const std::string& line : read.records) {
    if (!read_line(line, records)) return damaged();
  }
  return records;
}

Result<void> restore_records(serve::Server& server, const std::string& path) {
  const auto text = host::read_file(path);
  if (!text) {
    if (text.error().code == std::errc::no_such_file_or_directory) return {};
    return tl::unexpected(text.error());
  }
  const auto records = parse_records(*text);
  if (!records) {
    return fail(records.error().code, quote(path), records.error().what, records.error().hint);
  }
  for (const ServiceRecords& one : *records) {
    serve::Service* const service = server.find_service(one.service);
    if (service == nullptr) continue;
    if (const std::string levels = levels_of(service->target); levels != one.levels) {
      const auto tree = [](const std::string& of) { return of.empty() ? "no tree" : "tree " + of; };
      serve::EventLog::say(
          fmt::format("service {}: its records are of {} and start at 0, because it has {} now",
                      quote(one.service), tree(one.levels), tree(levels)));
      continue;
    }
    if (auto restored = service->target.restore(one.state, server.now()); !restored) {
      return restored;
    }
  }
  return {};
}

}  // namespace weir::control
