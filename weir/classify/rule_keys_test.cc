// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_keys.h"

#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/classify/command.h"
#include "weir/classify/rule_list.h"

namespace weir {
namespace {

// Every row, whatever keys there are: a new key needs no line here.

RuleKeys example_of(const RuleKey& key) {
  RuleKeys keys;
  EXPECT_TRUE(key.read(key.example, keys)) << key.name;
  return keys;
}

TEST(RuleKeys, EachReadsAndPrintsItsExample) {
  for (const RuleKey& key : rule_keys()) {
    const RuleKeys keys = example_of(key);
    EXPECT_TRUE(key.members.given(keys)) << key.name;
    EXPECT_FALSE(key.members.given({})) << key.name;
    EXPECT_EQ(print_keys(keys), " " + std::string(key.name) + "=" + std::string(key.example));
    EXPECT_TRUE(key.form.starts_with(std::string(key.name) + "=")) << key.form;
    EXPECT_TRUE(key.doc.ends_with('.')) << key.doc;
    RuleKeys other;
    EXPECT_FALSE(key.read("\x01", other)) << key.name;
  }
}

TEST(RuleKeys, EachIsOfItsOwnMembers) {
  for (const RuleKey& key : rule_keys()) {
    for (const RuleKey& other : rule_keys()) {
      EXPECT_EQ(other.members.given(example_of(key)), &key == &other) << key.name << other.name;
    }
    RuleKeys set;
    key.members.set(set, example_of(key));
    EXPECT_EQ(set, example_of(key));
    EXPECT_TRUE(covers(set, {}) && covers(set, set) && !covers({}, set)) << key.name;
    key.members.drop_same(set, example_of(key));
    EXPECT_EQ(set, RuleKeys{});
  }
}

TEST(RuleKeys, EachIsSetByAStartAndShownAsJson) {
  for (const RuleKey& key : rule_keys()) {
    RuleList list(FieldSet::all());
    std::string text =
        "start a jobid={a} " + std::string(key.name) + "=" + std::string(key.example);
    const auto plain = parse_command("start b jobid={a}", list.type());
    ASSERT_TRUE(list.apply(*plain));
    const auto started = parse_command(text, list.type());
    ASSERT_TRUE(started) << started.error().message();
    ASSERT_TRUE(list.apply(*started));
    if (key.json == nullptr) continue;
    EXPECT_NE(key.json(*list.find("a")), key.json(*list.find("b"))) << key.name;
    EXPECT_NE(json_keys(*list.find("a")).find(key.json(*list.find("a"))), std::string::npos);
  }
}

// ---- the manual ----

// "rate=N" of "=item B<rate>=I<N>".
std::string plain(const std::string& pod) {
  const std::string text = std::regex_replace(pod, std::regex("[BIC]<([^<>]*)>"), "$1");
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

using Items = std::map<std::string, std::string>;  // what stands below each =item

Items keys_in(const std::string& page) {
  Items items;
  std::string section = page.substr(page.find("=head1 KEYS"));
  section = section.substr(0, section.find("=back"));
  for (std::size_t at = section.find("=item "); at != std::string::npos;) {
    const std::size_t next = section.find("=item ", at + 1);
    const std::string item =
        section.substr(at + 6, next == std::string::npos ? next : next - at - 6);
    const std::size_t line = item.find('\n');
    items[plain(item.substr(0, line))] = plain(item.substr(line));
    at = next;
  }
  return items;
}

// Keys of the table whose item the manual has not, or with another line; items of no key.
std::vector<std::string> differences(std::span<const RuleKey> keys, Items items) {
  std::vector<std::string> found;
  for (const RuleKey& key : keys) {
    const auto item = items.find(std::string(key.form));
    const std::string mark = key.of == RuleKey::Of::kWeir ? " (Weir) " : " ";
    if (item == items.end()) {
      found.push_back(std::string(key.form) + " is missing");
    } else if (!item->second.starts_with(mark + std::string(key.doc))) {
      found.push_back(std::string(key.form) + " says" + item->second);
    }
    items.erase(std::string(key.form));
  }
  for (const auto& [form, text] : items) found.push_back(form + " is of no key");
  return found;
}

TEST(RuleKeys, AreThoseOfTheManual) {
  std::ifstream file(WEIR_DOCS "/man/weir-rules.7.pod");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(page.empty());
  EXPECT_EQ(differences(rule_keys(), keys_in(page)), std::vector<std::string>{});
}

TEST(RuleKeys, TheManualIsFoundToDiffer) {
  const Items items = keys_in(
      "=head1 KEYS\n\n=over\n\n=item B<rate>=I<N>\n\nOperations per second for each class,\n"
      "from 1 to 999999. More.\n\n=item B<pace>=I<N>\n\nNo key.\n\n=back\n");
  const std::vector<std::string> missing_and_more = {"rank=NAME is missing", "pace=N is of no key"};
  EXPECT_EQ(differences(rule_keys().first(2), items), missing_and_more);
  const Items other = keys_in("=head1 KEYS\n\n=item B<rate>=I<N>\n\nSomething else.\n\n=back\n");
  EXPECT_EQ(differences(rule_keys().first(1), other),
            std::vector<std::string>{"rate=N says Something else. "});
}

// ---- two rows with one name ----

constexpr RuleKey named(std::string_view name) {
  RuleKey key{};
  key.name = name;
  return key;
}

TEST(RuleKeys, AKeyTwiceInTheTableIsRefused) {
  static_assert(are_distinct(std::span<const RuleKey>()));
  constexpr std::array kOnce = {named("rate"), named("bps")};
  constexpr std::array kTwice = {named("rate"), named("bps"), named("rate")};
  static_assert(are_distinct(kOnce));
  static_assert(!are_distinct(kTwice), "or the table could have one twice");
  EXPECT_TRUE(are_distinct(rule_keys()));
}

// ---- verbs ----

TEST(RuleKeys, AChangeIgnoresWhatIsForStartAlone) {
  RuleKeys keys, change;
  change.realtime = true;
  change.rank = "a";
  merge_keys(keys, change, Verb::kChange);
  EXPECT_EQ(keys, RuleKeys{});
  merge_keys(keys, change, Verb::kStart);
  EXPECT_EQ(keys.realtime, true);
  EXPECT_EQ(keys.rank, std::nullopt) << "a place";
  EXPECT_FALSE(with_keys({}, change, Verb::kChange).realtime);
  EXPECT_TRUE(with_keys({}, change, Verb::kStart).realtime);
}

TEST(RuleKeys, AnUnknownKeyIsNamedWithTheNearest) {
  const auto unknown = parse_command("start a jobid={a} rat=5", FieldSet::all());
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message(),
            "column 19: 'rat=5' is no key with a value; did you mean rate=? " + rule_key_hint());
  EXPECT_TRUE(rule_key_hint().starts_with("expected rate=, rank=, realtime=, bps=, "));
  EXPECT_EQ(rule_key_hint("xyzzy"), rule_key_hint()) << "a wrong guess is worse than none";
}

TEST(RuleKeys, ValuesOutOfRangeAreFound) {
  RuleKeys keys;
  keys.rate = kRateMax;
  EXPECT_TRUE(check_keys(keys));
  keys.rate = kRateMax + 1;
  EXPECT_FALSE(check_keys(keys));
}

}  // namespace
}  // namespace weir
