// SPDX-License-Identifier: Apache-2.0
#include "weir/control/tokens.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::control {
namespace {

TEST(Tokens, ComparesSecrets) {
  EXPECT_TRUE(is_same_secret("token", "token"));
  EXPECT_FALSE(is_same_secret("token", "tokem"));
  EXPECT_FALSE(is_same_secret("token", "toke"));
  EXPECT_FALSE(is_same_secret("toke", "token"));
  EXPECT_FALSE(is_same_secret("", "token"));
  EXPECT_FALSE(is_same_secret("aa", "a")) << "a repetition is not the same";
}

TEST(Tokens, HaveANameAndARole) {
  const auto tokens =
      parse_tokens("# of the site\n\nprometheus\tread  aaa # old\ndeploy write bbb");
  ASSERT_TRUE(tokens) << tokens.error().message();
  ASSERT_EQ(tokens->size(), 2U);
  EXPECT_EQ((*tokens)[0].name, "prometheus");
  EXPECT_EQ((*tokens)[0].role, Access::kRead);
  EXPECT_EQ(find_token(*tokens, "bbb"), &(*tokens)[1]);
  EXPECT_EQ((*tokens)[1].role, Access::kWrite);
  EXPECT_EQ(find_token(*tokens, "bb"), nullptr);
  EXPECT_EQ(find_token(*tokens, ""), nullptr);
}

TEST(Tokens, ASingleWordIsOneTokenThatMayWrite) {
  const auto tokens = parse_tokens("s3cret\r\n\n");
  ASSERT_TRUE(tokens);
  ASSERT_EQ(tokens->size(), 1U);
  EXPECT_EQ(tokens->front().role, Access::kWrite);
  EXPECT_EQ(tokens->front().text, "s3cret");
}

TEST(Tokens, BadLinesAreNamedWithoutTheirToken) {
  for (const std::string text :
       {"", "\n# a\n", "a read", "a read SECRET b", "a admin SECRET", "SECRET\nb read SECRET",
        "a read SECRET\nSECRET", "a read SECRET\na write SECRET"}) {
    const auto tokens = parse_tokens(text);
    ASSERT_FALSE(tokens) << text;
    EXPECT_EQ(tokens.error().message().find("SECRET"), std::string::npos) << text;
  }
  EXPECT_FALSE(parse_tokens("a read " + std::string(Token::kTextMax + 1, 'x')));
  std::string many;
  for (std::size_t i = 0; i < Token::kMax; ++i) many += "n" + std::to_string(i) + " read t\n";
  EXPECT_TRUE(parse_tokens(many));
  EXPECT_FALSE(parse_tokens(many + "more read t\n"));
}

}  // namespace
}  // namespace weir::control
