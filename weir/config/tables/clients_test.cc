// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/config/serve_config_for_tests.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ServeConfig, ReadsGroupsOfClients) {
  const ServeOptions options = parsed(
      "[groups]\nlength = '20ms'\nquiesce = true\nquiet_max = '5ms'\n"
      "[[group]]\nname = 'a'\nnids = ['10.0.0.[1-9]@tcp', '10.1.0.0/16@tcp']\nlength = '1s'\n"
      "[[group]]\nname = 'b'\nnids = '*@o2ib'\n");
  EXPECT_EQ(options.groups,
            (serve::GroupsOptions{.length = milliseconds{20},
                                  .quiesce = true,
                                  .quiet_max = milliseconds{5},
                                  .groups = {{"a", nids("10.0.0.[1-9]@tcp 10.1.0.0/16@tcp"),
                                              "10.0.0.[1-9]@tcp 10.1.0.0/16@tcp ", seconds{1}},
                                             {"b", nids("*@o2ib"), "*@o2ib ", std::nullopt}}}));
}

TEST(ServeConfig, RefusesGroupsThatAreNone) {
  EXPECT_EQ(mistakes_of("[[group]]\n"),
            (std::vector<std::string>{"f:1:1: group: name is missing",
                                      "f:1:1: group: nids is missing; such as "
                                      "['10.0.0.[1-9]@tcp']"}));
  EXPECT_EQ(mistakes_of("[[group]]\nname = 'a'\nnids = '*@tcp'\n"
                        "[[group]]\nname = 'a'\nnids = '*@lo'\n"),
            (std::vector<std::string>{"f:5:8: group 'a': name is used twice"}));
  EXPECT_EQ(mistakes_of("[[group]]\nname = 'others'\nnids = '*@tcp'\n"),
            (std::vector<std::string>{
                "f:2:8: group 'others': name is reserved for clients without a group"}));
  EXPECT_EQ(mistakes_of("[groups]\nlength = '1us'\n").size(), 1U);
  std::string many;
  for (std::size_t i = 0; i <= kGroupsMax; ++i) {
    many += "[[group]]\nname = 'g" + std::to_string(i);
    many += "'\nnids = '*@tcp'\n";
  }
  EXPECT_EQ(mistakes_of(many),
            (std::vector<std::string>{"f:385:1: group 'g128': the maximum is 128"}));
}

TEST(ServeConfig, RefusesNodemapsThatAreNone) {
  EXPECT_EQ(mistakes_of("[[nodemap]]\n"),
            (std::vector<std::string>{"f:1:1: nodemap: name is missing",
                                      "f:1:1: nodemap: nids is missing; such as "
                                      "['10.0.0.[1-9]@tcp']"}));
  EXPECT_EQ(
      mistakes_of("[[nodemap]]\nname = 'default'\nnids = '*@tcp'\n"),
      (std::vector<std::string>{"f:2:8: nodemap 'default': name is reserved for the nodemap of "
                                "all other clients; use another name"}));
  EXPECT_EQ(
      mistakes_of("[[nodemap]]\nname = 'a b'\nnids = '*@tcp'\n"),
      (std::vector<std::string>{"f:2:8: nodemap 'a b': name is not a valid name; expected 1 to 31 "
                                "letters, digits, _ and -"}));
  EXPECT_EQ(mistakes_of("[[nodemap]]\nname = 5\nnids = '*@tcp'\n"),
            (std::vector<std::string>{"f:2:8: nodemap: name must be a quoted string"}));
  EXPECT_EQ(mistakes_of("[[nodemap]]\nname = 'a'\nnids = '*@tcp'\n"
                        "[[nodemap]]\nname = 'a'\nnids = '*@lo'\n"),
            (std::vector<std::string>{"f:5:8: nodemap 'a': name is used twice"}));
}

}  // namespace
}  // namespace weir::config
