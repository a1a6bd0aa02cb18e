// SPDX-License-Identifier: Apache-2.0
//
// The grammar and its details are those of lustre/ptlrpc/nrs_tbf.c: words end at single spaces; the
// conditions extend to the last } of the line and are split at every ",", then at every "&", and
// each piece at its first "=". docs/design/rules.md lists where Weir differs.
#include "weir/classify/command.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/classify/job_glob.h"
#include "weir/classify/mistake.h"
#include "weir/classify/number.h"
#include "weir/classify/opcode.h"

namespace weir {
namespace {

constexpr const char* kConditionHint = "expected FIELD={LIST} such as jobid={dd.* cp.0}";

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return text.substr(text.size());
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::optional<std::uint32_t> any_nodemap(std::string_view) { return 0; }

// Without a type it parses what all types have in common.
class CommandReader {
 public:
  CommandReader(std::string_view text, std::optional<FieldSet> type, const NodemapLookup& nodemaps)
      : text_(text), nodemaps_(nodemaps), rest_(text), is_typed_(type.has_value()) {
    command_.type = type.value_or(FieldSet::generic());
  }

  Parsed<RuleCommand> read() {
    if (auto done = read_all(); !done) return tl::unexpected(std::move(done.error()));
    return std::move(command_);
  }

  // REQUIRES: the text is print(change).
  Parsed<RuleCommand> bind(const RuleChange& change) {
    static_cast<RuleChange&>(command_) = change;
    if (auto done = bind_all(); !done) return tl::unexpected(std::move(done.error()));
    return std::move(command_);
  }

 private:
  using Done = Parsed<void>;

  // ---- places and words ----

  std::size_t at(std::string_view part) const {
    return static_cast<std::size_t>(part.data() - text_.data());
  }
  std::size_t end_of(std::string_view part) const { return at(part) + part.size(); }
  tl::unexpected<Mistake> refuse(std::string_view part, std::string_view what,
                                 std::string_view hint) const {
    return mistake(at(part), fmt::format("{} {}", quote(part), what), std::string(hint));
  }

  // Up to the next space, which is skipped. Afterwards there is no rest_ if there was no space.
  std::string_view next_word() {
    const std::string_view text = *rest_;
    const std::size_t blank = text.find(' ');
    if (blank == std::string_view::npos) {
      rest_.reset();
      return text;
    }
    rest_ = text.substr(blank + 1);
    return text.substr(0, blank);
  }

  // ---- the command ----

  Done read_all() {
    const std::size_t most = is_typed_ ? kCommandMax : kPrintedMax;
    if (text_.size() > most) {
      return mistake(most, fmt::format("the command is longer than {} bytes", most),
                     "write several rules");
    }
    if (const std::size_t nul = text_.find('\0'); nul != std::string_view::npos) {
      return mistake(nul, "the command contains a NUL byte", "expected text");
    }
    if (auto done = read_verb(); !done) return done;
    if (!rest_)
      return mistake(text_.size(), "no rule name", "expected a space and the name of a rule");
    if (auto done = read_name(next_word()); !done) return done;
    switch (command_.verb) {
      case Verb::kStart:
        return read_start();
      case Verb::kChange:
        return read_change();
      case Verb::kStop:
        return read_stop();
    }
    return {};
  }

  Done read_verb() {
    std::string_view word = next_word();
    if (word == "reg" || word == "hp") {
      command_.heads = word == "reg" ? Heads::kRegular : Heads::kHigh;
      if (!rest_) return mistake(text_.size(), "no verb", "expected start, change or stop");
      word = next_word();
    }
    if (word == "start") {
      command_.verb = Verb::kStart;
    } else if (word == "change") {
      command_.verb = Verb::kChange;
    } else if (word == "stop") {
      command_.verb = Verb::kStop;
    } else {
      return refuse(word, "is not a verb", "expected start, change or stop");
    }
    return {};
  }

  Done read_name(std::string_view name) {
    command_.name = name;
    return check_name(name);
  }

  Done check_name(std::string_view name) const {
    if (name.size() > kRuleNameMax) {
      return mistake(at(name) + kRuleNameMax, fmt::format("the name has {} bytes", name.size()),
                     fmt::format("the maximum is {}", kRuleNameMax), std::errc::filename_too_long);
    }
    if (auto done = check_rule_name(name); !done) return moved(std::move(done), name);
    return {};
  }

  // An error in a part, with its position in the text.
  Done moved(Done done, std::string_view part) const {
    return tl::unexpected(std::move(done.error()).moved_by(at(part)));
  }

  Done read_start() {
    if (!rest_) return mistake(text_.size(), "no conditions", kConditionHint);
    const std::string_view text = *rest_;
    const std::size_t brace = text.rfind('}');
    if (brace == std::string_view::npos) {
      return mistake(at(text), "no conditions in braces", kConditionHint);
    }
    const std::string_view conds = text.substr(0, brace + 1);
    const std::string_view after = text.substr(brace + 1);
    command_.conds = conds;
    command_.is_old_form = trim(conds).starts_with('{');
    const bool old_form = command_.is_old_form;
    if (auto done = read_conds(conds); !done) return done;
    if (after.empty()) return old_form ? refuse_old_rate(after) : Done{};
    if (after.front() != ' ') {
      return refuse(after, "directly after the conditions", "separate them with one space");
    }
    if (old_form) return read_old_rate(after.substr(1));
    if (auto done = read_pairs(after.substr(1)); !done) return done;
    return check_limits();
  }

  Done bind_all() {
    const std::size_t name_at = text_.find(command_.name);
    if (auto done = check_name(text_.substr(name_at, command_.name.size())); !done) return done;
    if (auto done = check_keys(command_.keys); !done) return done;
    const auto rate_at = [&] { return text_.substr(text_.rfind(' ') + 1); };
    if (command_.verb != Verb::kStart) {
      return command_.is_old_form ? check_old_rate(rate_at()) : Done{};
    }
    const std::string_view start = "start ";
    const std::size_t begin =
        head_prefix(command_.heads).size() + start.size() + command_.name.size() + 1;
    return read_conds(text_.substr(begin, command_.conds.size()));
  }

  Done read_conds(std::string_view conds) {
    if (auto done = check_conds(conds); !done) return done;
    conds_at_ = at(conds);
    if (!command_.is_old_form) return read_conjunctions(conds);
    return is_typed_ ? read_old_list(trim(conds)) : Done{};
  }

  // change NAME RATE is the form before 2.8.
  Done read_change() {
    if (!rest_) return mistake(text_.size(), "nothing to change", rule_key_hint());
    const std::string_view text = *rest_;
    command_.is_old_form = text.find('=') == std::string_view::npos && !text.empty();
    if (command_.is_old_form) return read_old_rate(text);
    if (auto done = read_pairs(text); !done) return done;
    if (can_change(command_.keys)) return {};
    return mistake(at(text), "no key that can be changed", rule_key_hint());
  }

  // realtime= after stop is parsed and ignored, as on a Lustre server.
  Done read_stop() {
    if (!rest_ || rest_->empty()) return {};
    std::string_view rest = *rest_;
    while (!rest.empty()) {
      const std::string_view pair = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
      if (!pair.starts_with("realtime=")) {
        return refuse(pair, "after the name of the rule to stop", "expected nothing more");
      }
      if (auto done = read_pair(pair); !done) return done;
    }
    command_.keys = {};
    return {};
  }

  // ---- conditions ----

  Done check_conds(std::string_view conds) const {
    for (std::size_t i = 0; i < conds.size(); ++i) {
      if (static_cast<unsigned char>(conds[i]) < ' ' || conds[i] == '\x7f') {
        return mistake(at(conds) + i, quote(conds.substr(i, 1)) + " in the conditions",
                       "use spaces and printable characters");
      }
      if (conds[i] != '}') continue;
      // "jobid={a} rate=5}" would be two items, and no rate.
      const std::string_view behind = trim(conds.substr(i + 1));
      for (const RuleKey& key : rule_keys()) {
        if (behind.starts_with(key.name) && behind.substr(key.name.size()).starts_with('=')) {
          return mistake(end_of(conds) - 1,
                         fmt::format("an extra '}}' that makes {} an item of the list",
                                     quote(behind.substr(0, behind.find_first_of(" }")))),
                         "remove it");
        }
      }
    }
    return {};
  }

  // A comma inside the brackets of a NID belongs to the NID.
  Done read_conjunctions(std::string_view conds) {
    Conditions::Conjunction conjunction;
    std::size_t begin = 0;
    bool field_known = false;
    bool is_nid = false;
    bool bracket = false;
    for (std::size_t i = 0; i <= conds.size(); ++i) {
      const char c = i < conds.size() ? conds[i] : ',';
      if (c == '=' && !field_known) {
        field_known = true;
        is_nid = trim(conds.substr(begin, i - begin)) == field_name(Field::kNid);
      }
      if (c == '[') bracket = is_nid;
      if (c == ']' || c == ' ' || c == '}' || i == conds.size()) bracket = false;
      if (c != '&' && (c != ',' || bracket)) continue;
      auto test = read_test(conds.substr(begin, i - begin));
      if (!test) return tl::unexpected(std::move(test.error()));
      conjunction.push_back(std::move(*test));
      if (c == ',') command_.conditions.add(std::exchange(conjunction, {}));
      begin = i + 1;
      field_known = is_nid = bracket = false;
    }
    return {};
  }

  // FIELD = {LIST}
  Parsed<FieldTest> read_test(std::string_view piece) {
    const std::string_view text = trim(piece);
    if (text.empty()) return mistake(at(piece), "an empty condition", kConditionHint);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) {
      return refuse(text, "is not a condition",
                    std::string(kConditionHint) + "; items are separated by spaces");
    }
    const std::string_view name = trim(text.substr(0, equals));
    const std::string_view list = trim(text.substr(equals + 1));
    const auto field = read_field(text, name);
    if (!field) return tl::unexpected(field.error());
    if (!list.starts_with('{')) return refuse(text, "has no '{' after the '='", kConditionHint);
    if (!list.ends_with('}')) {
      return refuse(text, "has no '}' at its end",
                    "close the list; items are separated by spaces and cannot contain ',' or '&'");
    }
    return read_list(*field, text, list.substr(1, list.size() - 2));
  }

  Parsed<Field> read_field(std::string_view text, std::string_view name) const {
    for (unsigned i = 0; i < kFields; ++i) {
      const auto field = static_cast<Field>(i);
      if (field_name(field) != name) continue;
      if (field == Field::kSubnet) {
        return refuse(text, "tests a subnet", "write it as nid={10.1.2.0/24@tcp}");
      }
      if (command_.type.has(field) || field == Field::kExport) return field;
      return refuse(text, "names a field that is not part of this policy's type",
                    "expected one of " + command_.type.print_type());
    }
    return refuse(text, "names an unknown field",
                  "expected jobid, nid, opcode, uid, gid, projid, nodemap or export");
  }

  Parsed<FieldTest> read_list(Field field, std::string_view text, std::string_view items) {
    FieldTest test{field,
                   static_cast<std::uint16_t>(at(text) - conds_at_),
                   static_cast<std::uint16_t>(text.size()),
                   {}};
    if (trim(items).empty()) return mistake(at(items), "an empty list", "expected an item");
    if (field == Field::kNid) {
      auto list = NidList::read(items);
      if (!list) return tl::unexpected(std::move(list.error()).moved_by(at(items)));
      test.list = std::move(*list);
      return test;
    }
    if (field == Field::kJobid) {
      test.list = read_names<JobId>(items);
      return test;
    }
    if (field == Field::kExport) {
      test.list = read_names<ExportName>(items);
      return test;
    }
    NumberList numbers;
    Done done;
    each_item(items, [&](std::string_view item) {
      const auto number = read_id(field, item);
      if (number) {
        numbers.add(*number);
      } else if (done) {
        done = tl::unexpected(number.error());
      }
    });
    if (!done) return tl::unexpected(std::move(done.error()));
    numbers.seal();
    test.list = std::move(numbers);
    return test;
  }

  template <class Visit>
  static void each_item(std::string_view items, const Visit& visit) {
    for (std::size_t i = items.find_first_not_of(' '); i != std::string_view::npos;) {
      const std::string_view item = items.substr(i, items.find(' ', i) - i);
      visit(item);
      i = items.find_first_not_of(' ', i + item.size());
    }
  }

  // A job id that is too long for any request is kept for the listing only.
  template <class Name>
  static NameList<Name> read_names(std::string_view items) {
    NameList<Name> names;
    each_item(items, [&](std::string_view item) {
      if (is_job_glob(item)) {
        names.add_pattern(item);
      } else if constexpr (std::is_same_v<Name, ExportName>) {
        names.add(export_name(item));
      } else if (item.size() <= Name::kSizeMax) {
        names.add(Name(item));
      }
    });
    names.seal();
    return names;
  }

  Parsed<std::uint32_t> read_id(Field field, std::string_view item) const {
    if (field == Field::kOpcode) {
      const auto opcode = opcode_number(item);
      if (!opcode) return refuse(item, "is not an opcode", "expected a wire name such as ost_read");
      return *opcode;
    }
    if (field == Field::kNodemap) {
      const auto nodemap = nodemaps_(item);
      if (!nodemap)
        return refuse(item, "is not a known nodemap", "define the nodemap before its rules");
      return *nodemap;
    }
    const auto number = read_number(item.starts_with('+') ? item.substr(1) : item);
    if (!number || *number > UINT32_MAX) {
      return refuse(item, fmt::format("is not a valid {}", field_name(field)),
                    "expected a number from 0 to 4294967295");
    }
    return static_cast<std::uint32_t>(*number);
  }

  // ---- forms before 2.8: the type says which field, and the rate has no key ----

  Done read_old_list(std::string_view text) {
    if (command_.type.size() != 1) {
      return refuse(text, "does not name its field",
                    "expected FIELD={LIST}, since this policy's type has several");
    }
    const std::string_view items = text.substr(1, text.size() - 2);
    const Field field = command_.type.first();
    if (const std::size_t bad = items.find_first_of(",&");
        bad != std::string_view::npos && field != Field::kNid) {
      return refuse(items.substr(bad, 1), "in the list", "items are separated by spaces");
    }
    auto test = read_list(field, text, items);
    if (!test) return tl::unexpected(std::move(test.error()));
    Conditions::Conjunction conjunction;
    conjunction.push_back(std::move(*test));
    command_.conditions.add(std::move(conjunction));
    return {};
  }

  Done refuse_old_rate(std::string_view text) const {
    const std::string_view field =
        command_.type.size() == 1 ? field_name(command_.type.first()) : "FIELD";
    return mistake(at(text), fmt::format("{} instead of a rate", quote(text)),
                   fmt::format("write start NAME {}={{LIST}} rate=N, change NAME rate=N, or just a "
                               "number from 1 to {}",
                               field, kRateMax));
  }

  Done read_old_rate(std::string_view text) {
    const std::string_view word = text.ends_with(' ') ? text.substr(0, text.size() - 1) : text;
    const auto rate = read_count(word);
    if (!rate || *rate < 1 || *rate > kRateMax) return refuse_old_rate(text);
    command_.keys.rate = static_cast<std::uint32_t>(*rate);
    return check_old_rate(word);
  }

  Done check_old_rate(std::string_view word) const {
    if (!is_typed_ || command_.type.size() == 1) return {};
    return refuse(word, "is a rate without 'rate='",
                  fmt::format("write rate={}", *command_.keys.rate));
  }

  // ---- keys and values ----

  // One space between pairs; one at the end is accepted.
  Done read_pairs(std::string_view text) {
    while (!text.empty()) {
      const std::size_t blank = text.find(' ');
      if (auto done = read_pair(text.substr(0, blank)); !done) return done;
      if (blank == std::string_view::npos) break;
      text.remove_prefix(blank + 1);
    }
    return {};
  }

  Done read_pair(std::string_view pair) {
    const std::size_t equals = pair.find('=');
    if (pair.empty()) return mistake(at(pair), "a second space", rule_key_hint());
    const std::string_view name = pair.substr(0, equals);
    const RuleKey* const key = find_rule_key(name);
    if (equals == std::string_view::npos || key == nullptr) {
      return refuse(pair, "is not KEY=VALUE", rule_key_hint(name));
    }
    const std::string_view value = pair.substr(equals + 1);
    if (value.empty()) return mistake(end_of(pair), "no value for " + quote(name), rule_key_hint());
    if (auto done = key->read(value, command_.keys); !done) return moved(std::move(done), value);
    if (key->name == "burst") burst_at_ = at(value);  // position for errors of check_limits()
    return {};
  }

  // Checks a start; after a change the list checks the whole rule.
  Done check_limits() const {
    const Limits limits = with_keys({}, command_.keys, Verb::kStart);
    if (const auto checked = limits.check(); !checked) {
      return mistake(burst_at_, checked.error().what, checked.error().hint);
    }
    return {};
  }

  std::string_view text_;
  const NodemapLookup& nodemaps_;
  std::optional<std::string_view> rest_;
  bool is_typed_;
  std::size_t conds_at_ = 0;
  std::size_t burst_at_ = 0;
  RuleCommand command_;
};

}  // namespace

std::optional<std::uint32_t> default_nodemap_only(std::string_view name) {
  if (name == "default") return 0;
  return std::nullopt;
}

NodemapLookup nodemaps_named(std::vector<std::string> names) {
  return [names = std::move(names)](std::string_view name) -> std::optional<std::uint32_t> {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return default_nodemap_only(name);
    return static_cast<std::uint32_t>(found - names.begin() + 1);
  };
}

Result<RuleCommand> parse_command(std::string_view text, FieldSet type,
                                  const NodemapLookup& nodemaps) {
  auto command = CommandReader(text, type, nodemaps).read();
  if (!command) return tl::unexpected(command.error().to_error());
  return std::move(*command);
}

Result<RuleChange> parse_rule(std::string_view text) {
  auto command = CommandReader(text, std::nullopt, any_nodemap).read();
  if (!command) return tl::unexpected(command.error().to_error());
  return static_cast<RuleChange&&>(*command);
}

Result<RuleCommand> bind(const RuleChange& change, FieldSet type, const NodemapLookup& nodemaps) {
  auto command = CommandReader(print(change), type, nodemaps).bind(change);
  if (!command) return tl::unexpected(command.error().to_error());
  return std::move(*command);
}

RuleOutline outline_of(std::string_view text) {
  RuleOutline outline;
  if (text.starts_with("reg ")) {
    outline.heads = Heads::kRegular;
    text.remove_prefix(4);
  } else if (text.starts_with("hp ")) {
    outline.heads = Heads::kHigh;
    text.remove_prefix(3);
  }
  outline.starts = text.starts_with("start");
  const std::string_view verb = text.substr(0, text.find(' '));
  outline.has_verb =
      verb.size() < text.size() && (verb == "start" || verb == "change" || verb == "stop");
  return outline;
}

}  // namespace weir
