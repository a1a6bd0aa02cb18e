// SPDX-License-Identifier: Apache-2.0
//
// weir rules: a dry run of rule commands.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include "apps/weir/command.h"
#include "apps/weir/lines.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/classify/mistake.h"
#include "weir/classify/number.h"
#include "weir/classify/opcode.h"
#include "weir/classify/reserve_bound.h"
#include "weir/classify/rule_keys.h"
#include "weir/classify/rule_list.h"
#include "weir/host/fd.h"
#include "weir/serve/options.h"

namespace weir::app {
namespace {

constexpr const char* kInput = R"(
Input, one per line:
  start NAME CONDITIONS [KEY=VALUE ...]   a rule command (start, change or stop, after an optional
                                          reg or hp), see weir-rules(7)
  list [hp]                               print the rules in order: NAME CONDITIONS RATE, ref N
  match [FIELD=VALUE ...] [bytes=SIZE]    print NAME<tab>REASON of the rule that such a request
                                          matches, for layer 0 and each other layer with rules
  # ...                                   a comment)";

constexpr const char* kExamples = R"(
Examples:
  weir rules --type jobid site.rules
  echo 'match jobid=dd.0 opcode=ost_write' | cat site.rules - | weir rules -
  (cat site.rules; echo list) | weir rules --json - | jq .rules

A command that fails is reported on standard error as 'line N: ERRNO: message', and the next line is
read. The exit status is the errno of the last command that failed, or 0. Manual: weir-rules(1).)";

std::string footer() {
  std::string text = kInput + std::string("\n\nKeys:\n");
  for (const RuleKey& key : rule_keys()) text += fmt::format("  {:<26}{}\n", key.form, key.doc);
  return text + kExamples;
}

struct RulesArguments {
  std::string file;
  std::string type = "generic";
  std::vector<std::string> nodemaps;
  std::string capacity = "auto";
  bool json = false;
};

// ---- a minimal JSON writer ----

// Bytes that are not ASCII appear as the characters U+0080 to U+00FF.
std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
    }
  }
  return out + '"';
}

std::string json_rule(const Rule& rule) {
  return fmt::format(R"({{"name":{},"conditions":{},"ref":{},{}}})", json_text(rule.name()),
                     json_text(rule.conds()), rule.refs(), json_keys(rule));
}

// ---- lines ----

struct IdField {
  std::string_view name;
  std::uint32_t Attributes::*field;
  const char* hint;
};
constexpr const char* kIdHint = "expected a number from 0 to 4294967295";
constexpr IdField kIdFields[] = {
    {"opcode", &Attributes::opcode, "expected a wire name such as ost_read, or a number"},
    {"uid", &Attributes::uid, kIdHint},
    {"gid", &Attributes::gid, kIdHint},
    {"projid", &Attributes::projid, kIdHint},
    {"nodemap", &Attributes::nodemap, "expected default, a name given with --nodemap, or a number"},
};
constexpr const char* kFieldHint =
    "expected nid=, jobid=, uid=, gid=, projid=, opcode=, nodemap=, export= or bytes=";

// The arguments of match.
struct Question {
  Attributes attributes;
  std::optional<Bytes> bytes;
};

class Rules {
 public:
  Rules(FieldSet type, const ReserveBound& bound, const RulesArguments& arguments)
      : arguments_(arguments), bound_(bound), regular_(type), high_(type) {}

  void run(std::string_view line) {
    ++number_;
    if (const auto done = obey(line); !done) {
      status_ = static_cast<int>(done.error().code);
      print_error("line {}: {}: {}\n", number_, errno_name(status_), done.error().message());
      if (isatty(STDERR_FILENO) != 0) show_place(line, column_of(done.error()));
    }
  }

  // The errno of the last command that failed.
  int status() const { return status_; }

 private:
  // Errors of writing are checked once per line.
  static void put(const std::string& text) {
    static_cast<void>(std::fwrite(text.data(), 1, text.size(), stdout));
  }

  static std::string errno_name(int value) {
    const char* name = strerrorname_np(value);
    return name == nullptr ? std::to_string(value) : name;
  }

  // For terminals: the part of the line around the column, with a caret below it.
  static void show_place(std::string_view line, std::optional<std::size_t> column) {
    if (!column) return;
    constexpr std::size_t kBefore = 40;
    constexpr std::size_t kShown = 76;
    const std::size_t begin = *column > kBefore ? *column - kBefore : 0;
    std::string shown(line.substr(begin, kShown));
    for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '?';
    print_error("  {}\n  {:>{}}\n", shown, '^', *column - begin);
  }

  static std::string_view first_word(std::string_view line) {
    return line.substr(0, line.find_first_of(" \t"));
  }

  std::optional<std::uint32_t> nodemap_id(std::string_view name) const {
    for (std::size_t i = 0; i < arguments_.nodemaps.size(); ++i) {
      if (arguments_.nodemaps[i] == name) return static_cast<std::uint32_t>(i + 1);
    }
    return default_nodemap_only(name);
  }

  Result<void> obey(std::string_view line) {
    const std::size_t start = line.find_first_not_of(" \t\r");
    if (start == std::string_view::npos || line[start] == '#') return {};
    if (line.size() > kCommandMax) {
      return fail(std::errc::invalid_argument, fmt::format("column {}", kCommandMax + 1),
                  fmt::format("a line of more than {} bytes", kCommandMax), "write several lines");
    }
    const std::string_view word = first_word(line);
    if (word == "list") return list(line);
    if (word == "match") return match(line);
    const auto nodemaps = [this](std::string_view name) { return nodemap_id(name); };
    const auto command = parse_command(line, regular_.type(), nodemaps);
    if (!command) return tl::unexpected(command.error());
    return apply(*command);
  }

  // On both heads or on none.
  Result<void> apply(const RuleCommand& command) {
    std::vector<RuleList*> lists;
    if (command.heads != Heads::kHigh) lists.push_back(&regular_);
    if (command.heads != Heads::kRegular) lists.push_back(&high_);
    for (const RuleList* rules : lists) {
      if (auto checked = rules->check(command); !checked) return checked;
    }
    const std::array<const RuleList*, 2> both = {&regular_, &high_};
    if (auto bounded = bound_.check(command, both); !bounded) return bounded;
    for (RuleList* rules : lists) {
      if (auto applied = rules->apply(command); !applied) return applied;
    }
    return {};
  }

  Result<void> list(std::string_view line) const {
    const bool high = line == "list hp";
    if (line != "list" && !high) {
      return fail(std::errc::invalid_argument, "column 6",
                  quote(line) + " is not a valid way to list", "expected list or list hp");
    }
    const RuleList& rules = high ? high_ : regular_;
    if (!arguments_.json) {
      put(rules.listing());
      return {};
    }
    std::string text;
    for (const Rule* rule : rules.rules()) text += (text.empty() ? "" : ",") + json_rule(*rule);
    put(fmt::format("{{\"priority\":\"{}\",\"rules\":[{}]}}\n", high ? "hp" : "reg", text));
    return {};
  }

  Result<void> match(std::string_view line) const {
    const auto question = read_question(line);
    if (!question) return tl::unexpected(question.error());
    std::string json;
    for (unsigned layer = 0; layer < kLayers; ++layer) {
      if (!regular_.has_layer(layer)) continue;
      const std::string text = answer(*question, layer);
      if (!arguments_.json) {
        put(text + '\n');
        continue;
      }
      const std::size_t tab = text.find('\t');
      json +=
          fmt::format(R"({}{{"layer":{},"name":{},"reason":{}}})", json.empty() ? "" : ",", layer,
                      tab == 1 && text[0] == '-' ? "null" : json_text(text.substr(0, tab)),
                      json_text(text.substr(tab + 1)));
    }
    if (arguments_.json) put(fmt::format("{{\"match\":[{}]}}\n", json));
    return {};
  }

  std::string answer(const Question& question, unsigned layer) const {
    std::string text = regular_.explain(question.attributes, layer);
    if (layer != 0) text.insert(text.find('\t') + 1, fmt::format("layer {}: ", layer));
    const Rule* rule = regular_.match(question.attributes, layer);
    if (question.bytes && rule != nullptr) text += "; costs " + price(*rule, *question.bytes);
    return text;
  }

  // What a request of this size takes from the buckets of its class.
  static std::string price(const Rule& rule, Bytes size) {
    const Limits& limits = rule.limits();
    const std::uint64_t tokens = limits.cost.of(size).count();
    std::string of_rate = fmt::format("{} token{}", tokens, tokens == 1 ? "" : "s");
    std::string of_bps = fmt::format("{} bytes", size.count());
    if (!limits.bps) return of_rate;
    return limits.rate ? of_rate + " and " + of_bps : of_bps;
  }

  // match FIELD=VALUE ... bytes=SIZE
  Result<Question> read_question(std::string_view line) const {
    Question question;
    std::size_t at = first_word(line).size();
    while ((at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos) {
      const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
      if (auto done = read_value(line.substr(at, end - at), question); !done) {
        done.error().where = fmt::format("column {}", at + 1);
        return tl::unexpected(done.error());
      }
      at = end;
    }
    return question;
  }

  static tl::unexpected<Error> refuse(std::string_view pair, std::string_view what,
                                      std::string_view hint) {
    return fail(std::errc::invalid_argument, {}, fmt::format("{} {}", quote(pair), what), hint);
  }

  Result<void> read_value(std::string_view pair, Question& question) const {
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view key = pair.substr(0, equals);
    const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
    Attributes& attributes = question.attributes;
    if (equals == pair.size()) return refuse(pair, "is not a field with a value", kFieldHint);
    if (key == "jobid") {
      attributes.job = JobId(value);
      return {};
    }
    if (key == "export") {
      attributes.export_name = export_name(value);
      return {};
    }
    if (key == "nid") {
      const auto nid = parse_nid(value);
      if (!nid) return refuse(pair, nid.error().what, nid.error().hint);
      attributes.nid = *nid;
      return {};
    }
    if (key == "bytes") {
      const auto size = parse_size(value);
      if (!size) return refuse(pair, "is not a valid size", "expected one such as 1MiB");
      question.bytes = *size;
      return {};
    }
    for (const IdField& known : kIdFields) {
      if (key != known.name) continue;
      const auto id = read_id(key, value);
      if (!id) return refuse(pair, "has no such value", known.hint);
      attributes.*known.field = *id;
      return {};
    }
    return refuse(pair, "is not a field with a value", kFieldHint);
  }

  // A name if the field has names, or a number.
  std::optional<std::uint32_t> read_id(std::string_view key, std::string_view value) const {
    if (key == "opcode") {
      if (const auto opcode = opcode_number(value)) return opcode;
    }
    if (key == "nodemap") {
      if (const auto nodemap = nodemap_id(value)) return nodemap;
    }
    const auto number = read_number(value);
    if (!number || *number > UINT32_MAX) return std::nullopt;
    return static_cast<std::uint32_t>(*number);
  }

  const RulesArguments& arguments_;
  ReserveBound bound_;
  RuleList regular_;
  RuleList high_;
  std::uint64_t number_ = 0;
  int status_ = 0;
};

// ---- the command ----

ReserveBound bound_of(const Capacity& capacity) {
  if (!capacity.rate) return {};
  const bool in_bytes = capacity.kind == Capacity::Kind::kBytes;
  return {.capacity = capacity.rate, .cost = in_bytes ? Cost::bytes() : Cost::op()};
}

int rules(const RulesArguments& arguments) {
  const FieldSet type = value_or_fail(FieldSet::parse_type(arguments.type), Exit::kUsage, "--type");
  const Capacity capacity =
      value_or_fail(serve::parse_capacity(arguments.capacity), Exit::kUsage, "--capacity");
  host::Fd owned;
  int fd = STDIN_FILENO;
  std::string name = "standard input";
  if (arguments.file != "-") {
    name = quote(arguments.file);
    owned = host::Fd(open(arguments.file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!owned.is_open()) check(fail_errno(errno, name), Exit::kNoInput, "");
    fd = owned.get();
  }
  Rules list(type, bound_of(capacity), arguments);
  // A longer line is truncated; it is refused in any case.
  Lines lines(fd, name, kCommandMax + 1);
  std::string line;
  while (value_or_fail(lines.next(line), Exit::kIoErr, "")) {
    list.run(line);
    check_output();
  }
  return list.status();
}

}  // namespace

void add_rules(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<RulesArguments>();
  CLI::App* command = weir.add_subcommand(
      "rules", "Check rule commands, and show which rule a request would match");
  command->add_option("FILE", arguments->file, "Read commands from FILE; - is standard input")
      ->required();
  command
      ->add_option(
          "--type", arguments->type,
          "Fields that rules can use, joined with '+', as in 'tbf TYPE' (default generic: all)")
      ->type_name("TYPE");
  command
      ->add_option("--nodemap", arguments->nodemaps,
                   "Define a nodemap for use in rules; can be repeated")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command
      ->add_option("--capacity", arguments->capacity,
                   "Capacity of the device, of which rules can reserve 90 %; auto: not known")
      ->type_name("RATE");
  command->add_flag("--json", arguments->json, "Print JSON, one object per line");
  command->footer(footer());
  command->callback([arguments, &status] { status = rules(*arguments); });
}

}  // namespace weir::app
