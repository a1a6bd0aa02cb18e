// SPDX-License-Identifier: Apache-2.0
//
// Journal x reload x policies x full disk x kill, compared with a simple specification: the active
// rules are those of the file, of the command line and of all confirmed commands, applied one after
// the other, if the type of the policy has their fields. Temporary commands count until the policy
// or the server ends. Each step predicts whether it is confirmed. With processes and a real disk:
// tests/control/kept_test.py.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/config/file_follower.h"
#include "weir/config/serve_config.h"
#include "weir/control/change_queue.h"
#include "weir/serve/protocol.h"

namespace weir::control {
namespace {

// No client connects.
const auto kProtocol = serve::add_protocol(
    {.name = "none", .help = "", .begin = [](serve::SessionPort&) { return nullptr; }},
    serve::Standard::kYes);

using Texts = std::vector<std::string>;

// ---- the specification ----

struct SpecRule {
  std::string name;
  std::string field;  // jobid or nid
  std::uint64_t rate = 0;

  std::string text() const {
    const std::string item = field == "nid" ? "10.0.0.1@tcp" : name;
    return name + " " + field + "={" + item + "} " + std::to_string(rate);
  }
};

struct SpecCommand {
  std::string verb;
  SpecRule rule;
  std::string rank = {};
  bool is_kept = true;

  std::string text() const {
    std::string text = verb + " " + rule.name;
    if (verb == "start") {
      text += " " + rule.field + "={" + (rule.field == "nid" ? "10.0.0.1@tcp" : rule.name) + "}";
    }
    if (verb != "stop") text += " rate=" + std::to_string(rule.rate);
    return rank.empty() ? text : text + " rank=" + rank;
  }
};

using SpecList = std::vector<SpecRule>;  // as listed, without default

auto place_of(SpecList& list, const std::string& name) {
  return std::find_if(list.begin(), list.end(),
                      [&](const SpecRule& one) { return one.name == name; });
}
bool has(SpecList list, const std::string& name) {
  return name == "default" || place_of(list, name) != list.end();
}

// A rank that names a rule which no longer exists is ignored.
void apply_to(SpecList& list, const SpecCommand& command) {
  auto place = place_of(list, command.rule.name);
  if (command.verb == "stop") {
    if (place != list.end()) list.erase(place);
    return;
  }
  if (command.verb == "start") {
    if (place != list.end()) return;
    const bool is_ranked = !command.rank.empty() && has(list, command.rank);
    auto before = !is_ranked                  ? list.begin()
                  : command.rank == "default" ? list.end()
                                              : place_of(list, command.rank);
    list.insert(before, command.rule);
    return;
  }
  if (place == list.end()) return;
  place->rate = command.rule.rate;
  if (command.rank.empty() || command.rank == command.rule.name) return;
  if (!has(list, command.rank)) return;
  const SpecRule moved = *place;
  list.erase(place);
  list.insert(command.rank == "default" ? list.end() : place_of(list, command.rank), moved);
}

struct Spec {
  SpecList file, command_line;        // in the order they are started
  std::vector<SpecCommand> commands;  // that are in effect
  std::string kept_policy = "tbf jobid", policy = "tbf jobid";
  std::map<std::string, std::uint64_t> jobs;
  bool is_full = false;

  SpecList list(bool with_temporary) const {
    SpecList rules;
    for (const SpecList* const base : {&file, &command_line}) {
      for (const SpecRule& one : *base) rules.insert(rules.begin(), one);
    }
    for (const SpecCommand& one : commands) {
      if (one.is_kept || with_temporary) apply_to(rules, one);
    }
    return rules;
  }
  bool fits(const SpecRule& rule) const { return policy == "tbf" || policy == "tbf " + rule.field; }
  SpecList running() const {
    SpecList rules = list(true);
    std::erase_if(rules, [&](const SpecRule& one) { return !fits(one); });
    return rules;
  }
  Texts listing() const {
    Texts lines;
    for (const SpecRule& one : running()) lines.push_back(one.text());
    return lines;
  }

  bool takes(const SpecCommand& command) const {
    if (policy == "fifo") return false;
    if (command.verb == "start" && !fits(command.rule)) return false;
    std::vector<SpecList> lists = {running(), list(true)};
    if (command.is_kept) lists.push_back(list(false));
    for (const SpecList& one : lists) {
      if (command.verb == "start" && has(one, command.rule.name)) return false;
      if (command.verb == "change" && !has(one, command.rule.name)) return false;
      if (!command.rank.empty() && !has(one, command.rank)) return false;
    }
    // Stopping a rule that would not exist after a restart needs no record.
    const bool is_written =
        command.is_kept && (command.verb != "stop" || has(list(false), command.rule.name));
    return !is_written || !is_full;
  }
  void take(SpecCommand command) {
    if (command.verb == "stop" && !has(list(false), command.rule.name)) command.is_kept = false;
    commands.push_back(std::move(command));
  }
  void drop_temporary() {
    std::erase_if(commands, [](const SpecCommand& one) { return !one.is_kept; });
  }
};

// ---- the server, with a disk that can be full and a file that can be edited ----

class World {
 public:
  World() {
    std::array<char, 32> name{"/tmp/weir-model-XXXXXX"};
    folder_ = mkdtemp(name.data());
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  void start(const SpecList& file, const SpecList& command_line) {
    server_.reset();
    file_ = texts_of(file);
    auto options = read();
    ASSERT_TRUE(options) << options.error().message();
    config::FileFollower follower([this] { return read(); }, *options);
    for (const std::string& text : texts_of(command_line)) {
      options->services[0].more_rules.push_back(parse_rule(text).value());
    }
    auto server = serve::Server::create(*options);
    ASSERT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
    follower_.emplace(std::move(follower));
    Texts mistakes;
    const auto forgotten = replay(*server_, effective(disk, mistakes), mistakes);
    disk.insert(disk.end(), forgotten.begin(), forgotten.end());
    queue_.emplace(host(), "boot");
  }

  // Whether it was confirmed.
  bool change(Change change, bool persists) {
    std::optional<bool> done;
    queue_->add({.changes = {std::move(change)}, .persists = persists, .is_params = true}, "",
                ChangeQueue::Journalling::kFirst, [&](const Result<ChangeQueue::Answer>& answer) {
                  done = answer && !failure_of(answer->outcomes);
                });
    EXPECT_TRUE(done.has_value());
    return done.value_or(false);
  }
  bool reload(const SpecList& file) {
    const Texts before = std::exchange(file_, texts_of(file));
    const bool is_read = follower_->follow(*server_).back() == "configuration reloaded";
    if (!is_read) file_ = before;
    return is_read;
  }

  Texts listing() {
    Texts lines;
    const RuleView* const rules = service().target.rules(Head::kRegular);
    if (rules == nullptr) return lines;
    for (const Rule* const rule : rules->rules(Head::kRegular).rules()) {
      if (rule->is_default()) continue;
      lines.push_back(rule->name() + " " + rule->conds() + " " +
                      std::to_string(rule->limits().rate_in_force()));
    }
    return lines;
  }
  Texts kept() {
    Texts names;
    for (const RuleBook::Entry& one : service().rules.kept().entries()) {
      if (!one.is_default()) names.insert(names.begin(), one.name);
    }
    return names;
  }
  serve::Service& service() { return *server_->find_service("ost_io"); }

  Texts disk;  // records
  std::function<void()> when_written;
  bool is_full = false;
  bool forgets = false;  // confirmed records

 private:
  static Texts texts_of(const SpecList& rules) {
    Texts texts;
    for (const SpecRule& one : rules) {
      texts.push_back(SpecCommand{.verb = "start", .rule = one}.text());
    }
    return texts;
  }

  Result<serve::ServeOptions> read() const {
    std::string rules;
    for (const std::string& one : file_) rules += "'" + one + "',";
    auto parsed =
        config::parse_serve_config("[server]\nlisten = 'unix:" + folder_ + "/s'\n" +
                                       "[[export]]\nname = 'e'\nstore = 'memory:1MiB'\n" +
                                       "[[service]]\ncapacity = 100\nrules = [" + rules + "]\n",
                                   "f");
    if (!parsed) return tl::unexpected(parsed.error().front());
    return *parsed;
  }

  ChangeQueue::Host host() {
    return {.ask =
                [this](const std::function<void(serve::Server&)>& on_loop,
                       const std::function<void(const Result<void>&)>& then) {
                  on_loop(*server_);
                  then({});
                },
            .write =
                [this](const Texts& records, const std::function<void(const Result<void>&)>& then) {
                  if (is_full) return then(fail(std::errc::no_space_on_device, "disk", "is full"));
                  if (!forgets) disk.insert(disk.end(), records.begin(), records.end());
                  if (when_written) std::exchange(when_written, nullptr)();
                  then({});
                },
            .locks = [] { return Params(); }};
  }

  std::string folder_;
  Texts file_;
  std::unique_ptr<serve::Server> server_;
  std::optional<config::FileFollower> follower_;
  std::optional<ChangeQueue> queue_;
};

// ---- steps ----

SpecRule random_rule(Rng& rng, const std::string& prefix) {
  return {.name = prefix + std::to_string(rng.below(3)),
          .field = rng.below(3) == 0 ? "nid" : "jobid",
          .rate = 1 + rng.below(9)};
}

std::string random_name(Rng& rng) {
  static constexpr std::array kNames = {"f0", "f1", "c0", "k0", "k1", "k2", "t0", "t1", "default"};
  return kNames[rng.below(kNames.size())];
}

SpecCommand random_command(Rng& rng) {
  SpecCommand command{.verb = "start", .rule = {}};
  command.is_kept = rng.below(3) > 0;
  const std::uint64_t kind = rng.below(8);
  command.rule = random_rule(rng, command.is_kept || rng.below(3) == 0 ? "k" : "t");
  if (kind >= 4) {
    command.verb = kind == 4 ? "stop" : "change";
    std::string name = random_name(rng);
    if (name != "default") command.rule.name = name;
  }
  if (command.verb != "stop" && rng.below(4) == 0) command.rank = random_name(rng);
  return command;
}

// All rules match jobid, the type of the policy in the file.
SpecList random_file(Rng& rng) {
  SpecList file;
  for (int i = 0; i < 3; ++i) {
    SpecRule rule = random_rule(rng, "f");
    rule.field = "jobid";
    if (!has(file, rule.name)) file.push_back(rule);
  }
  return file;
}

class Model {
 public:
  explicit Model(std::uint64_t seed) : rng_(seed) {
    spec_.command_line = {{.name = "c0", .field = "jobid", .rate = 5}};
    spec_.file = random_file(rng_);
    world_.start(spec_.file, spec_.command_line);
  }

  // Returns what it did, for a message.
  std::string step() {
    switch (rng_.below(12)) {
      case 0:
        return restart();
      case 1:
        return reload();
      case 2:
        return switch_policy();
      case 3:
        spec_.is_full = world_.is_full = !spec_.is_full;
        return spec_.is_full ? "disk full" : "disk free";
      case 4:
        world_.disk = effective_records(world_.disk);
        return "journal shortened";
      case 5:
        return set_nodes();
      default:
        return command();
    }
  }
  // The difference between server and specification; empty: none.
  std::string difference() {
    const auto print = [](const Texts& lines) {
      std::string text;
      for (const std::string& line : lines) text += line + "; ";
      return text;
    };
    const auto compare = [&](const char* what, const Texts& is, const Texts& should_be) {
      return is == should_be
                 ? std::string()
                 : std::string(what) + ": " + print(is) + "\ninstead of: " + print(should_be);
    };
    Texts kept;
    for (const SpecRule& one : spec_.list(false)) kept.push_back(one.name);
    std::string found = compare("in force", world_.listing(), spec_.listing()) +
                        compare("kept", world_.kept(), kept);
    for (const auto& [job, nodes] : spec_.jobs) {
      const std::uint64_t has = world_.service().target.controller()->nodes_of(JobId(job));
      if (has != nodes) found += "nodes of " + job + ": " + std::to_string(has);
    }
    return found;
  }
  World& world() { return world_; }

  std::size_t confirmed = 0, refused = 0;

 private:
  std::string restart() {
    spec_.drop_temporary();
    spec_.policy = spec_.kept_policy;
    world_.start(spec_.file, spec_.command_line);
    return "kill";
  }
  std::string reload() {
    const SpecList file = random_file(rng_);
    // Rules with names of the file that come from elsewhere prevent some edits.
    const bool is_plain = std::all_of(
        spec_.commands.begin(), spec_.commands.end(),
        [](const SpecCommand& one) { return one.verb != "start" || one.rule.name[0] != 'f'; });
    const bool is_read = world_.reload(file);
    EXPECT_TRUE(is_read || !is_plain);
    if (is_read) spec_.file = file;
    return "reload";
  }
  std::string switch_policy() {
    static constexpr std::array kPolicies = {"tbf jobid", "tbf nid", "tbf", "fifo"};
    const std::string policy = kPolicies[rng_.below(kPolicies.size())];
    const bool is_kept = rng_.below(2) == 0;
    const bool done = world_.change({.target = policy_path("ost_io"), .value = policy}, is_kept);
    EXPECT_EQ(done, !is_kept || !spec_.is_full);
    if (done) {
      if (is_kept) spec_.kept_policy = policy;
      if (spec_.policy != policy) spec_.drop_temporary();
      spec_.policy = policy;
    }
    return (is_kept ? "kept policy " : "policy ") + policy;
  }
  std::string set_nodes() {
    const std::string job = "j" + std::to_string(rng_.below(3));
    const std::uint64_t nodes = 1 + rng_.below(9);
    const bool done =
        world_.change({.kind = Change::Kind::kJob, .target = job, .nodes = nodes}, true);
    EXPECT_EQ(done, !spec_.is_full);
    if (done) spec_.jobs[job] = nodes;
    return "nodes of " + job;
  }
  std::string command() {
    const SpecCommand command = random_command(rng_);
    const bool done = world_.change(
        param_change(Change::Kind::kParam, rule_path("ost_io"), command.text()), command.is_kept);
    EXPECT_EQ(done, spec_.takes(command)) << command.text();
    if (done) spec_.take(command);
    ++(done ? confirmed : refused);
    return (command.is_kept ? "kept " : "") + command.text();
  }

  Rng rng_;
  Spec spec_;
  World world_;
};

TEST(ChangeQueueProperty, WhatIsListedIsWhatARestartShows) {
  const char* const asked = std::getenv("WEIR_MODEL_SEEDS");
  const std::uint64_t seeds = asked == nullptr ? 20 : std::strtoull(asked, nullptr, 10);
  std::size_t confirmed = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Model model(seed);
    std::string steps;
    for (int i = 0; i < 60; ++i) {
      const std::string what = model.step();
      steps += what + "\n";
      ASSERT_EQ(model.difference(), "") << "seed " << seed << " after:\n" << steps;
      ASSERT_FALSE(HasFailure()) << "seed " << seed << " after:\n" << steps;
    }
    confirmed += model.confirmed;
    refused += model.refused;
  }
  EXPECT_GT(confirmed, refused / 4) << "most commands make sense";
  EXPECT_GT(refused, confirmed / 4) << "and some do not";
}

// As the cluster does, which does not wait.
TEST(ChangeQueue, ANameThatIsTakenWhileItIsWrittenIsNotStartedByTheNextStart) {
  World world;
  const SpecList file = {{.name = "f0", .field = "jobid", .rate = 1}};
  world.start(file, {});
  const auto start = [](const std::string& name) {
    return param_change(Change::Kind::kParam, rule_path("ost_io"),
                        "start " + name + " jobid={a} rate=7");
  };
  ASSERT_TRUE(world.change(start("k1"), true));
  world.when_written = [&] {
    ASSERT_TRUE(world.service().target.write_rule("start k0 jobid={b} rate=3", {}));
  };
  EXPECT_FALSE(world.change(start("k0"), true));
  const auto kept = [](std::vector<std::string> names) { return names; };
  EXPECT_EQ(world.kept(), kept({"k1", "f0"}));
  world.start(file, {});
  EXPECT_EQ(world.kept(), kept({"k1", "f0"}));
  EXPECT_EQ(effective_records(world.disk).size(), 1U);
}

// A disk that confirms writes and loses them is detected after the first kills.
TEST(ChangeQueueProperty, TheComparisonFindsADiskThatForgets) {
  std::string found;
  for (std::uint64_t seed = 1; seed <= 20 && found.empty(); ++seed) {
    Model model(seed);
    model.world().forgets = true;
    for (int i = 0; i < 60 && found.empty(); ++i) {
      (void)model.step();
      found = model.difference();
    }
  }
  EXPECT_NE(found, "");
}

}  // namespace
}  // namespace weir::control
