// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_record.h"

#include <charconv>

#include <fmt/format.h>

#include "weir/cluster/lock_state.h"

namespace weir::cluster {
namespace {

constexpr std::string_view kUnknown = "unknown";
constexpr std::string_view kClients = "clients";

// Takes the text up to the next space.
std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

std::optional<std::uint64_t> read_number(std::string_view text, int base) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc{} || end != text.data() + text.size() || number == 0) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> read_term(std::string_view text) {
  const auto term = read_number(text, 10);
  return term && *term <= lock::kIncarnationMax ? term : std::nullopt;
}

std::optional<lock::TermRecord::Active> read_active(const EtcdClient::Entry& entry) {
  std::string_view text = entry.value;
  const auto term = read_term(take_word(text));
  const std::string_view name = take_word(text);
  if (!term || name.empty() || text.empty()) return std::nullopt;
  return lock::TermRecord::Active{
      .term = *term, .name = std::string(name), .address = std::string(text), .lease = entry.lease};
}

}  // namespace

std::string lock_keys(std::string_view prefix) { return fmt::format("{}/locks/", prefix); }

Result<LockRecord> read_lock_record(std::string_view keys,
                                    const std::vector<EtcdClient::Entry>& entries) {
  LockRecord record;
  for (const EtcdClient::Entry& entry : entries) {
    if (!std::string_view(entry.key).starts_with(keys)) continue;
    const std::string_view rest = std::string_view(entry.key).substr(keys.size());
    bool is_valid = true;
    if (rest == "active") {
      record.terms.active = read_active(entry);
      record.active_modified = entry.modified;
      is_valid = record.terms.active.has_value();
    } else if (rest == "term") {
      const auto term = read_term(entry.value);
      record.terms.term = term.value_or(0);
      record.terms.term_modified = entry.modified;
      is_valid = term.has_value();
    } else if (rest == "key") {
      record.key = parse_key(entry.value);
      is_valid = record.key.has_value();
    } else if (rest == "left") {
      record.terms.left = parse_handover(entry.value);
      is_valid = record.terms.left.has_value();
    }
    if (is_valid) continue;
    return fail(std::errc::invalid_argument, "etcd key " + entry.key,
                "was not written by a lock server",
                rest == "term" ? "write a number larger than the incarnation of every lock server "
                                 "(weir lock stats)"
                               : "delete it");
  }
  return record;
}

std::string print_active(std::uint64_t term, std::string_view name, std::string_view address) {
  return fmt::format("{} {} {}", term, name, address);
}

std::string print_handover(const lock::Handover& left) {
  if (left.knows == lock::Handover::Knows::kNothing)
    return fmt::format("{} {}", left.term, kUnknown);
  std::string text = fmt::format("{} {}", left.term, kClients);
  for (const std::uint64_t client : left.clients) text += fmt::format(" {:x}", client);
  return text;
}

std::optional<lock::Handover> parse_handover(std::string_view text) {
  const auto term = read_term(take_word(text));
  const std::string_view what = take_word(text);
  if (!term || (what != kUnknown && what != kClients)) return std::nullopt;
  lock::Handover left{.term = *term};
  if (what == kUnknown) return text.empty() ? std::optional(left) : std::nullopt;
  left.knows = lock::Handover::Knows::kClients;
  while (!text.empty()) {
    const auto client = read_number(take_word(text), 16);
    if (!client || left.clients.size() == lock::Handover::kClientsMax) return std::nullopt;
    left.clients.push_back(*client);
  }
  return left;
}

}  // namespace weir::cluster
