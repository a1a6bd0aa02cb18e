// SPDX-License-Identifier: Apache-2.0
#include "weir/control/records.h"

#include <iterator>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/control/job_stats_text.h"
#include "weir/control/journal.h"
#include "weir/host/files.h"

namespace weir::control {
namespace {

using Account = Ledger::Account;

tl::unexpected<Error> damaged() {
  return fail(std::errc::illegal_byte_sequence, "records of jobs", "are damaged");
}

std::string service_line(const std::string& name, const Controller::State& state) {
  const Ledger::State& ledger = state.allocator.ledger;
  return fmt::format("service {} {} {} {} {} {} {} {} {}", name, ledger.period, ledger.written_off,
                     ledger.half_life ? ledger.half_life->count() : 0, ledger.fade_period.count(),
                     static_cast<std::uint64_t>(ledger.fade_carry >> 64),
                     static_cast<std::uint64_t>(ledger.fade_carry), state.allocator.carry,
                     state.allocator.carry_of);
}

std::string account_line(const Account& one) {
  return fmt::format("account {} {} {} {} {} {} {} {} {} {} {} {}",
                     one.job.empty() ? "-" : "=" + printable_id(one.job.text()), one.record,
                     one.remainder, one.allotted, one.last_active, one.fade_remainder,
                     one.lent_remainder, one.borrowed_remainder, one.lent.count(),
                     one.borrowed.count(), one.lent_sum.count(), one.borrowed_sum.count());
}

bool read_service(std::istringstream& words, Records& records) {
  std::string name;
  Controller::State state;
  Ledger::State& ledger = state.allocator.ledger;
  std::int64_t half_life = 0, fade_period = 0;
  std::uint64_t high = 0, low = 0;
  words >> name >> ledger.period >> ledger.written_off >> half_life >> fade_period >> high >> low >>
      state.allocator.carry >> state.allocator.carry_of;
  if (words.fail()) return false;
  if (half_life > 0) ledger.half_life = Nanoseconds{half_life};
  ledger.fade_period = Nanoseconds{fade_period};
  ledger.fade_carry = static_cast<unsigned __int128>(high) << 64 | low;
  records.emplace_back(std::move(name), std::move(state));
  return true;
}

bool read_account(std::istringstream& words, Records& records) {
  if (records.empty()) return false;
  std::string job;
  Account one;
  std::uint64_t lent = 0, borrowed = 0, lent_sum = 0, borrowed_sum = 0;
  words >> job >> one.record >> one.remainder >> one.allotted >> one.last_active >>
      one.fade_remainder >> one.lent_remainder >> one.borrowed_remainder >> lent >> borrowed >>
      lent_sum >> borrowed_sum;
  if (words.fail()) return false;
  if (job != "-") {
    const auto id = read_id(std::string_view(job).substr(1));
    if (!id) return false;
    one.job = JobId(*id);
  }
  one.lent = Tokens{lent};
  one.borrowed = Tokens{borrowed};
  one.lent_sum = Tokens{lent_sum};
  one.borrowed_sum = Tokens{borrowed_sum};
  records.back().second.allocator.ledger.accounts.push_back(one);
  return true;
}

}  // namespace

Records records_of(const serve::Server& server) {
  Records records;
  for (const auto& service : server.services()) {
    const Controller* const controller = service->target.controller();
    if (controller != nullptr) records.emplace_back(service->name, controller->state());
  }
  return records;
}

std::string print_records(const Records& records) {
  std::string text;
  for (const auto& [name, state] : records) {
    text += journal_line(service_line(name, state));
    for (const Account& one : state.allocator.ledger.accounts) {
      text += journal_line(account_line(one));
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
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    const bool sound = kind == "service"   ? read_service(words, records)
                       : kind == "account" ? read_account(words, records)
                                           : kind == "end";
    if (!sound) return damaged();
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
  for (const auto& [name, state] : *records) {
    serve::Service* const service = server.find_service(name);
    if (service == nullptr) continue;
    if (auto restored = service->target.restore(state, server.now()); !restored) return restored;
  }
  return {};
}

}  // namespace weir::control
