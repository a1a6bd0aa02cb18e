// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/cluster_state.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weir/base/crc32c.h"
#include "weir/base/quote.h"
#include "weir/coordinate/epoch.h"

namespace weir::cluster {
namespace {

constexpr std::string_view kTitle = "weir cluster state 1\n";
constexpr std::string_view kRule = "rule ";
constexpr std::string_view kCure =
    "restore it from a backup, or remove it: the server then reads the rules from etcd before it "
    "accepts clients";

std::string sum_line(std::string_view text) { return fmt::format("sum {:08x}\n", crc32c(text)); }

// Parses a text line by line and word by word.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  bool is_done() const { return rest_.empty(); }
  std::string_view peek() const { return rest_.substr(0, rest_.find('\n')); }
  std::string_view next() {
    const std::string_view line = peek();
    rest_.remove_prefix(std::min(line.size() + 1, rest_.size()));
    return line;
  }
  // The text after the word.
  std::optional<std::string_view> after(std::string_view word) {
    std::string_view line = next();
    if (!line.starts_with(word) || !line.substr(word.size()).starts_with(' ')) return std::nullopt;
    return line.substr(word.size() + 1);
  }
  template <class Number>
  std::optional<Number> number_after(std::string_view word, int base = 10) {
    const auto text = after(word);
    return text ? read<Number>(*text, base) : std::nullopt;
  }
  template <class Number>
  static std::optional<Number> read(std::string_view text, int base = 10) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return number;
  }

 private:
  std::string_view rest_;
};

// "ost_io/wide 12 40", and the commands below it.
std::optional<SharedRule> read_rule(Lines& lines) {
  const std::string_view head = lines.next().substr(kRule.size());
  const std::size_t second = head.rfind(' ');
  const std::size_t first =
      second == 0 || second == head.npos ? head.npos : head.rfind(' ', second - 1);
  if (first == head.npos) return std::nullopt;
  const auto created = Lines::read<std::int64_t>(head.substr(first + 1, second - first - 1));
  const auto modified = Lines::read<std::int64_t>(head.substr(second + 1));
  std::string commands;
  while (!lines.is_done() && !lines.peek().starts_with(kRule)) {
    commands += lines.next();
    commands += '\n';
  }
  auto rule = read_shared_rule(head.substr(0, first), commands);
  if (!created || !modified || !rule) return std::nullopt;
  rule->created = *created;
  rule->modified = *modified;
  return std::move(*rule);
}

std::optional<ClusterState> read_body(std::string_view text) {
  Lines lines(text);
  ClusterState state;
  const auto prefix = lines.after("prefix");
  const auto history = lines.number_after<std::uint64_t>("history", 16);
  const auto revision = lines.number_after<std::int64_t>("generation");
  const auto members = lines.number_after<std::uint32_t>("members");
  if (!prefix || !history || !revision || !members) return std::nullopt;
  if (*revision < 0 || *members > kEpochMembersMax) return std::nullopt;
  state.prefix = *prefix;
  state.history = *history;
  state.revision = *revision;
  state.members = *members;
  while (!lines.is_done()) {
    if (!lines.peek().starts_with(kRule)) return std::nullopt;
    auto rule = read_rule(lines);
    if (!rule) return std::nullopt;
    state.rules.push_back(std::move(*rule));
  }
  return state;
}

bool can_be_read_again(const SharedRule& rule) {
  const std::string key = rule.key();
  return std::none_of(key.begin(), key.end(), [](char letter) {
    const auto code = static_cast<unsigned char>(letter);
    return code <= ' ' || code == 0x7F;
  });
}

}  // namespace

Result<ClusterState> parse_cluster_state(std::string_view text) {
  const std::size_t size = sum_line({}).size();
  if (text.starts_with(kTitle) && text.size() >= kTitle.size() + size) {
    const std::string_view summed = text.substr(0, text.size() - size);
    if (text.substr(summed.size()) == sum_line(summed)) {
      if (auto state = read_body(summed.substr(kTitle.size()))) return std::move(*state);
    }
  }
  return fail(std::errc::invalid_argument, {}, "is damaged, or not the state file of a cluster",
              std::string(kCure));
}

std::string print_cluster_state(const ClusterState& state) {
  std::string text(kTitle);
  text += fmt::format("prefix {}\nhistory {:016x}\ngeneration {}\nmembers {}\n", state.prefix,
                      state.history, state.revision, state.members);
  for (const SharedRule& rule : state.rules) {
    if (!can_be_read_again(rule)) continue;
    text +=
        fmt::format("{}{} {} {}\n{}", kRule, rule.key(), rule.created, rule.modified, rule.print());
  }
  return text + sum_line(text);
}

Result<ClusterStateFile> ClusterStateFile::open(const std::string& path,
                                                const std::string& prefix) {
  const auto refused = [&](Error error) {
    error.where = "cluster state " + (error.where.empty() ? path : error.where);
    return tl::unexpected(std::move(error));
  };
  auto file = host::StateFile::open(path);
  if (!file) return refused(file.error());
  ClusterState state{.prefix = prefix};
  if (!file->is_new()) {
    auto parsed = parse_cluster_state(file->text());
    if (!parsed) return refused(parsed.error());
    state = std::move(*parsed);
  }
  if (state.prefix != prefix) {
    return refused({std::errc::invalid_argument, path,
                    fmt::format("contains the rules of the cluster {}, not of {}",
                                quote(state.prefix), quote(prefix)),
                    "name another file, or set prefix in [cluster] to that of the file"});
  }
  ClusterStateFile opened(path, std::move(*file), std::move(state));
  // Detects a folder or disk that cannot be written now, not with the first change.
  opened.is_kept_ = false;
  if (auto kept = opened.keep(opened.state_); !kept) return refused(kept.error());
  return opened;
}

Result<void> ClusterStateFile::keep(ClusterState state) {
  if (is_kept_ && state == state_) return {};
  state_ = std::move(state);
  is_kept_ = false;
  auto replaced = file_.replace(print_cluster_state(state_));
  if (!replaced) return replaced;
  is_kept_ = true;
  return {};
}

}  // namespace weir::cluster
