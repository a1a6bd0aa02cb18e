// SPDX-License-Identifier: Apache-2.0
#include "weir/control/usage_sampler.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/control/server_for_tests.h"

namespace weir::control {
namespace {

using std::chrono::seconds;
using Resolution = UsageHistory::Resolution;

// Steps until the sample is whole, and returns their number.
int sample(serve::Server& server, UsageHistory& history, Nanoseconds at, std::size_t* classes) {
  history.begin(instant_at(0) + at);
  UsageSampler sampler;
  int steps = 0;
  for (bool is_whole = false; !is_whole; ++steps) {
    is_whole = sampler.step(server);
    sampler.hand_over(history);
  }
  if (classes != nullptr) *classes = sampler.classes();
  return steps;
}

TEST(UsageSampler, TakesTheSumsOfClassesAndOfTheService) {
  ServerForTests test({"start dd jobid={dd.*} rate=1000"});
  UsageHistory history;
  sample(test.server(), history, seconds{1}, nullptr);
  test.serve("dd.0", 2);
  test.serve("other", 3);
  std::size_t classes = 0;
  sample(test.server(), history, seconds{2}, &classes);
  sample(test.server(), history, seconds{3}, nullptr);
  EXPECT_EQ(classes, 2U);
  const auto view = history.view("ost_io", Resolution::kSeconds, {"dd/dd.0", "default/other"});
  ASSERT_TRUE(view);
  ASSERT_EQ(view->classes.size(), 2U);
  const auto sum = [](const std::vector<UsageStep>& steps) {
    UsageSums all;
    for (const UsageStep& one : steps) {
      all.served += one.served();
      all.bytes += one.bytes();
    }
    return all;
  };
  EXPECT_EQ(sum(view->classes[0].steps), (UsageSums{2, 8192, 0}));
  EXPECT_EQ(sum(view->classes[1].steps), (UsageSums{3, 12'288, 0}));
  EXPECT_EQ(sum(view->total).served, 5U);
}

TEST(UsageSampler, VisitsABoundedNumberOfClassesInAStep) {
  ServerForTests test({});
  for (std::size_t i = 0; i < UsageSampler::kStep + 10; ++i) {
    test.serve(fmt::format("job.{}", i), 1);
  }
  UsageHistory history;
  std::size_t classes = 0;
  EXPECT_GE(sample(test.server(), history, seconds{1}, &classes), 4) << "two for classes and jobs";
  EXPECT_EQ(classes, UsageSampler::kStep + 10);
}

}  // namespace
}  // namespace weir::control
