// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_log.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace weir {
namespace {

std::string without_blanks(std::string_view text) {
  std::string kept;
  std::copy_if(text.begin(), text.end(), std::back_inserter(kept), [](char c) { return c != ' '; });
  return kept;
}

}  // namespace

RuleLog::RuleLog(const RuleLog& other)
    : logged_(other.logged_), ranked_(other.ranked_), next_number_(other.next_number_) {
  for (auto it = logged_.begin(); it != logged_.end(); ++it)
    by_name_[std::string(it->name())].push_back(it);
}

RuleLog& RuleLog::operator=(const RuleLog& other) { return *this = RuleLog(other); }

std::vector<RuleLog::Place> RuleLog::mergeable(const Logged& next) const {
  const auto found = by_name_.find(std::string(next.name()));
  if (found == by_name_.end()) return {};
  std::uint64_t barrier = ranked_.empty() ? 0 : *ranked_.rbegin();
  for (const Place place : found->second) {
    const bool is_other = place->record.target != next.record.target ||
                          place->change()->heads != next.change()->heads;
    if (is_other) barrier = std::max(barrier, place->number);
  }
  std::vector<Place> places;
  std::copy_if(found->second.begin(), found->second.end(), std::back_inserter(places),
               [&](Place place) { return place->number > barrier; });
  return places;
}

RuleLog::Place RuleLog::erase(Place place) {
  const std::string name(place->name());
  std::erase(by_name_[name], place);
  if (by_name_[name].empty()) by_name_.erase(name);
  ranked_.erase(place->number);
  return logged_.erase(place);
}

// Removes earlier commands that a later one supersedes; false if the later one is not needed.
bool RuleLog::supersede(const Logged& next) {
  if (next.change() == nullptr) return true;
  const RuleChange& change = *next.change();
  const std::vector<Place> places = mergeable(next);
  if (change.verb == Verb::kStop) {
    const auto started = std::find_if(places.begin(), places.end(),
                                      [](Place place) { return place->is(Verb::kStart); });
    for (auto it = started; it != places.end(); ++it) {
      if (!(*it)->is(Verb::kStop)) erase(*it);
    }
    return started == places.end() && (places.empty() || !places.back()->is(Verb::kStop));
  }
  if (change.verb == Verb::kChange) {
    if (change.keys.rank) return true;
    for (const Place place : places) {
      const bool is_moot = place->is(Verb::kChange) && covers(change.keys, place->change()->keys);
      if (is_moot) erase(place);
    }
    return true;
  }
  const auto last = std::find_if(places.rbegin(), places.rend(),
                                 [](Place place) { return !place->is(Verb::kChange); });
  return last == places.rend() || !is_it(**last, next.record.target, next.record.command);
}

void RuleLog::add(std::string_view target, RuleOrText command) {
  Logged next{.record = {std::string(target), std::move(command)}, .number = next_number_++};
  if (!supersede(next)) return;
  const bool is_ranked = next.change() != nullptr && next.change()->keys.rank;
  const Place place = logged_.insert(logged_.end(), std::move(next));
  by_name_[std::string(place->name())].push_back(place);
  if (is_ranked) ranked_.insert(place->number);
}

bool RuleLog::is_it(const Logged& one, std::string_view target,
                    const std::optional<RuleOrText>& command) {
  if (one.record.target != target) return false;
  if (!command || one.record.command == *command) return true;
  const RuleChange* const change = change_in(*command);
  if (change != nullptr && one.change() != nullptr && change->name != one.name()) return false;
  return without_blanks(print(one.record.command)) == without_blanks(print(*command));
}

std::size_t RuleLog::forget(std::string_view target, const std::optional<RuleOrText>& command) {
  const std::size_t before = logged_.size();
  for (auto it = logged_.begin(); it != logged_.end();) {
    it = is_it(*it, target, command) ? erase(it) : std::next(it);
  }
  return before - logged_.size();
}

void RuleLog::move(std::string_view target, const std::optional<RuleOrText>& command,
                   std::string_view to) {
  for (Logged& one : logged_) {
    if (is_it(one, target, command)) one.record.target = to;
  }
}

std::vector<RuleLog::Record> RuleLog::records() const {
  std::vector<Record> all;
  all.reserve(logged_.size());
  for (const Logged& one : logged_) all.push_back(one.record);
  return all;
}

}  // namespace weir
