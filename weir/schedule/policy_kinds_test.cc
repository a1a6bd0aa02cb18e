// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/policy_kinds.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/ring.h"
#include "weir/schedule/gate.h"

namespace weir {
namespace {

// Last in, first out, and a number that does nothing.
class Lifo final : public Policy {
 public:
  std::string_view name() const override { return "lifo"; }
  void admit(Request& request, Instant /*now*/) override { requests_.push_back(&request); }
  Pick pick(Instant /*now*/, Urge /*urge*/) override {
    if (requests_.empty()) return {};
    Request* const last = requests_.back();
    requests_.pop_back();
    return {.request = last};
  }
  void remove(Request& request, Instant /*now*/) override { std::erase(requests_, &request); }
  std::optional<std::uint64_t> tunable(std::string_view name) const override {
    return name == "charm" ? std::optional(charm_) : std::nullopt;
  }
  void set_tunable(std::string_view /*name*/, std::uint64_t value) override { charm_ = value; }

 private:
  std::vector<Request*> requests_;
  std::uint64_t charm_ = 1;
};

PolicyKind lifo() {
  return {.name = "lifo",
          .help = "last in, first out",
          .tunables = {{.name = "charm", .least = 1, .most = 9, .help = "of no use"}},
          .make = [](std::string_view, const PolicySetup&) -> Result<PolicyKind::Pair> {
            return PolicyKind::Pair{std::make_unique<Lifo>(), std::make_unique<Lifo>()};
          }};
}

// Once for all tests of this program.
void add_lifo() {
  static const bool added = add_policy(lifo()).has_value();
  ASSERT_TRUE(added);
}

TEST(PolicyKinds, OneThatWasAddedRunsLikeAnother) {
  add_lifo();
  Gate gate({.slots = 1});
  Request requests[3];
  ASSERT_TRUE(gate.start_policy("lifo", "", Heads::kBoth));
  for (Request& request : requests) gate.admit(request, Head::kRegular, instant_at(0));
  for (const int expected : {2, 1, 0}) {
    const Decision decision = gate.next(instant_at(1));
    ASSERT_EQ(decision.kind(), Decision::Kind::kRun);
    EXPECT_EQ(&decision.request(), &requests[expected]);
    gate.complete(decision.request(), instant_at(1));
  }
  EXPECT_EQ(gate.policies(Head::kRegular).back().name, "lifo");
  EXPECT_EQ(gate.engine(Head::kRegular), nullptr);
}

TEST(PolicyKinds, ItsTunablesAreSetWithinTheirBounds) {
  add_lifo();
  Gate gate({});
  EXPECT_EQ(gate.set_tunable(Head::kHigh, "charm", 3).error().code, std::errc::no_such_device);
  ASSERT_TRUE(gate.start_policy("lifo", "", Heads::kHigh));
  EXPECT_TRUE(gate.set_tunable(Head::kHigh, "charm", 3));
  EXPECT_EQ(gate.set_tunable(Head::kHigh, "charm", 10).error().code, std::errc::invalid_argument);
  EXPECT_EQ(gate.set_tunable(Head::kHigh, "charme", 3).error().code, std::errc::no_such_device);
  EXPECT_EQ(gate.policy_in_force(Head::kHigh).tunable("charm"), 3U);
}

TEST(PolicyKinds, ANameIsTakenOnceAndMustBeOne) {
  add_lifo();
  const std::size_t before = policy_kinds().size();
  EXPECT_EQ(add_policy(lifo()).error().code, std::errc::file_exists);
  for (const char* const name : {"", "two words", "longer_than_fifteen_bytes", "tbf\n", "Upper"}) {
    PolicyKind kind = lifo();
    kind.name = name;
    EXPECT_EQ(add_policy(std::move(kind)).error().code, std::errc::invalid_argument) << name;
  }
  PolicyKind nothing = lifo();
  nothing.name = "nothing";
  nothing.make = nullptr;
  EXPECT_EQ(add_policy(std::move(nothing)).error().code, std::errc::invalid_argument);
  EXPECT_EQ(policy_kinds().size(), before);
}

TEST(PolicyKinds, TunablesMustHaveNamesAndValuesOfTheirOwn) {
  add_lifo();
  const std::size_t before = policy_kinds().size();
  const auto with = [](std::vector<Tunable> tunables, std::string name = "tuned") {
    PolicyKind kind = lifo();
    kind.name = std::move(name);
    kind.tunables = std::move(tunables);
    return add_policy(std::move(kind)).error().code;
  };
  for (const char* const name : {"", "two words", "longer_than_fifteen_bytes", "Upper", "a:b"}) {
    EXPECT_EQ(with({{.name = name}}), std::errc::invalid_argument) << name;
  }
  EXPECT_EQ(with({{.name = "a", .least = 5, .most = 4}}), std::errc::invalid_argument);
  EXPECT_EQ(with({{.name = "a"}, {.name = "a"}}), std::errc::file_exists);
  EXPECT_EQ(with({{.name = "rule"}}, "tbf"), std::errc::file_exists);
  EXPECT_EQ(policy_kinds().size(), before);
}

TEST(PolicyKinds, AnUnknownTunableIsToldTheNearest) {
  const auto found = find_tunable(**find_policy("crrn"), "quantom");
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message().find("did you mean quantum? it has quantum"), std::string::npos)
      << found.error().message();
  EXPECT_NE(find_tunable(**find_policy("tbf"), "x").error().message().find("has no tunables"),
            std::string::npos);
}

TEST(PolicyKinds, AnUnknownNameIsToldTheNearest) {
  const auto found = find_policy("crnn");
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message().find("did you mean crrn? there are fifo, crrn"),
            std::string::npos)
      << found.error().message();
}

}  // namespace
}  // namespace weir
