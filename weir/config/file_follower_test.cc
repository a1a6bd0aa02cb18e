// SPDX-License-Identifier: Apache-2.0
#include "weir/config/file_follower.h"

#include <array>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "weir/config/serve_config.h"
#include "weir/serve/protocol.h"

namespace weir::config {
namespace {

using Lines = std::vector<std::string>;

constexpr const char* kRefused = "the configuration was not changed";

// No client connects.
const auto kProtocol = serve::add_protocol(
    {.name = "none", .help = "", .begin = [](serve::SessionPort&) { return nullptr; }},
    serve::Standard::kYes);

// A server that never runs, and its file. Under clients: tests/clients/reload_test.py.
class FileFollowerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<char, 32> name{"/tmp/weir-follow-XXXXXX"};
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void start(const std::string& rules) {
    file_ = rules;
    auto options = read();
    ASSERT_TRUE(options) << options.error().message();
    auto server = serve::Server::create(*options);
    ASSERT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
    follower_.emplace([this] { return read(); }, *options);
  }
  Lines edit(const std::string& rules) {
    file_ = rules;
    return follower_->follow(*server_);
  }
  void command(const std::string& text) {
    const auto change = parse_rule(text);
    ASSERT_TRUE(change);
    ASSERT_TRUE(rules().apply(*change, serve::KeptRules::Keeping::kTemporary, server_->now()))
        << text;
  }
  Target& target() { return server_->find_service("ost_io")->target; }
  serve::KeptRules& rules() { return server_->find_service("ost_io")->rules; }
  serve::Server& server() { return *server_; }
  std::string names() {
    std::string text;
    for (const Rule* rule : target().rules(Head::kRegular)->rules(Head::kRegular).rules()) {
      text += rule->name() + " ";
    }
    return text;
  }

 private:
  Result<serve::ServeOptions> read() const {
    auto parsed = parse_serve_config("[server]\nlisten = 'unix:" + folder_ + "/s'\n" +
                                         "[[export]]\nname = 'e'\nstore = 'memory:1MiB'\n" +
                                         "[[service]]\nrules = [" + file_ + "]\n",
                                     "f");
    if (!parsed) return tl::unexpected(parsed.error().front());
    return *parsed;
  }

  std::string folder_;
  std::string file_;
  std::unique_ptr<serve::Server> server_;
  std::optional<FileFollower> follower_;
};

TEST_F(FileFollowerTest, DoesWhatWasEdited) {
  start("'start a jobid={a} rate=1'");
  EXPECT_EQ(edit("'start a jobid={a} rate=2', 'start b jobid={b} rate=3'"),
            (Lines{"service 'ost_io': change a rate=2",
                   "service 'ost_io': start b jobid={b} rate=3", "configuration reloaded"}));
  EXPECT_EQ(names(), "b a default ");
  EXPECT_EQ(edit("'start a jobid={a} rate=2', 'start b jobid={b} rate=3'"),
            Lines{"configuration reloaded"});
}

TEST_F(FileFollowerTest, TakesNobodyElsesRuleForTheFiles) {
  start("'start a jobid={a} rate=1', 'start b jobid={b} rate=1'");
  command("stop a");
  command("start a jobid={other} rate=9");
  for (const char* edited :
       {"'start b jobid={b} rate=1'", "'start a jobid={a} rate=5', 'start b jobid={b} rate=1'"}) {
    const Lines lines = edit(edited);
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_NE(lines[0].find("rule 'a': no longer comes from the file"), std::string::npos)
        << lines[0];
    EXPECT_EQ(lines[1], kRefused);
    EXPECT_EQ(names(), "a b default ");
  }
  command("stop a");
  EXPECT_EQ(edit("'start b jobid={b} rate=1'").size(), 2U);
  EXPECT_EQ(names(), "b default ");
}

TEST_F(FileFollowerTest, ReadsTheFileUnderOtherPoliciesToo) {
  start("'start a jobid={a} rate=1'");
  ASSERT_TRUE(rules().start_policy("fifo", server().now()));
  EXPECT_EQ(edit("'start a jobid={a} rate=2', 'start b jobid={b} rate=1'").back(),
            "configuration reloaded");
  ASSERT_TRUE(rules().start_policy("tbf jobid", server().now()));
  EXPECT_EQ(names(), "b a default ");
  EXPECT_EQ(edit("'start b jobid={b} rate=1'").back(), "configuration reloaded");
  EXPECT_EQ(names(), "b default ");
}

TEST_F(FileFollowerTest, PutsRulesOfTheFileBehindThoseThatAreStartedAfterThem) {
  start("'start a jobid={a} rate=1'");
  ASSERT_TRUE(rules().apply(parse_rule("start kept jobid={k} rate=9").value(),
                            serve::KeptRules::Keeping::kKept, server().now()));
  edit("'start a jobid={a} rate=1', 'start b jobid={b} rate=1'");
  EXPECT_EQ(names(), "kept b a default ") << "as after a restart";
}

TEST_F(FileFollowerTest, LeavesEverythingAsItIsWhenOneThingCannotBeDone) {
  start("'start a jobid={a} rate=1'");
  command("start mine jobid={m} rate=9");
  const Lines lines = edit("'start a jobid={a} rate=2', 'start mine jobid={b} rate=3'");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1], kRefused);
  EXPECT_EQ(
      target().rules(Head::kRegular)->rules(Head::kRegular).find("a")->limits().rate_in_force(),
      1U);
  EXPECT_EQ(edit("nonsense")[1], kRefused);
  EXPECT_EQ(edit("'start a jobid={a} rate=2'").size(), 2U);
}

}  // namespace
}  // namespace weir::config
