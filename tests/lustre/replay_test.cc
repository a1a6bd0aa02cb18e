// SPDX-License-Identifier: Apache-2.0
//
// What running Lustre servers said (tests/recorded/lustre), against the parsers of the driver and
// against the model: every listing is read, and sessions of commands are repeated on the model,
// which must answer with the same exit status and the same listings.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/lustre/text.h"
#include "weir/sim/lustre_model.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

const fs::path kRecorded = WEIR_RECORDED;
const std::string kService(sim::LustreServer::kService);

struct Block {
  std::string command;
  std::string output;
  int exit = 0;
};

std::string read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "$ command", its output, "# exit=N elapsed=..."
std::vector<Block> blocks_of(const fs::path& path) {
  std::vector<Block> blocks;
  std::istringstream lines(read_whole(path));
  std::string line;
  bool open = false;
  while (std::getline(lines, line)) {
    if (line.starts_with("$ ")) {
      blocks.push_back({line.substr(2), "", 0});
      open = true;
    } else if (line.starts_with("# exit=") && open) {
      blocks.back().exit = std::stoi(line.substr(7));
      open = false;
    } else if (open) {
      blocks.back().output += line + "\n";
    }
  }
  return blocks;
}

std::vector<fs::path> recordings() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(kRecorded)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// lctl puts "name=" before the value, on a line of its own where the value has several.
std::string without_name(const std::string& output) {
  const std::size_t equals = output.find('=');
  const std::size_t end = output.find('\n');
  if (equals == std::string::npos || equals > end) return output;
  const std::string rest = output.substr(equals + 1);
  return rest.starts_with('\n') ? rest.substr(1) : rest;
}

std::string without_refs(const std::string& listing) {
  return std::regex_replace(listing, std::regex(", ref \\d+"), ", ref N");
}

TEST(Recorded, EveryListingIsRead) {
  int rules = 0;
  int policies = 0;
  int tables = 0;
  int stats = 0;
  for (const fs::path& file : recordings()) {
    for (const Block& block : blocks_of(file)) {
      const bool is_plain = block.command.find('|') == std::string::npos &&
                            block.command.find(';') == std::string::npos;
      if (block.exit != 0 || !is_plain || !block.command.starts_with("lctl get_param ")) continue;
      const std::string what = block.command.substr(block.command.rfind(' ') + 1);
      const bool is_one = std::count(block.command.begin(), block.command.end(), ' ') == 2;
      if (!is_one) continue;
      const std::string text = without_name(block.output);
      SCOPED_TRACE(file.string() + ": " + block.command);
      if (what.ends_with("ost_io.nrs_tbf_rule")) {
        EXPECT_TRUE(lustre::parse_rules(text));
        ++rules;
      } else if (what == "ost.OSS.ost_io.nrs_policies") {
        EXPECT_TRUE(lustre::parse_policies(text));
        ++policies;
      } else if (what == "cpu_partition_table") {
        EXPECT_TRUE(lustre::parse_partitions(text));
        ++tables;
      } else if (what == "obdfilter.*.stats") {
        EXPECT_GE(lustre::parse_stats(text)->at(0).samples, 29U);
        EXPECT_GT(lustre::parse_stats(text)->at(0).usecs, 100'000U);
        ++stats;
      }
    }
  }
  EXPECT_GE(rules, 30);
  EXPECT_GE(policies, 4);
  EXPECT_GE(tables, 2);
  EXPECT_EQ(stats, 2);
}

TEST(Recorded, JobStatsOfBothReleases) {
  for (const char* release : {"2.17.0", "2.17.57"}) {
    const auto block = blocks_of(kRecorded / release / "32-job_stats-catA.txt").at(0);
    const std::string text = std::regex_replace(block.output, std::regex("\\$\n"), "\n");
    const auto read = lustre::parse_job_stats(text);
    ASSERT_TRUE(read) << release;
    ASSERT_FALSE(read->jobs.empty());
    EXPECT_EQ(read->jobs[0].job, JobId("dd.0"));
    EXPECT_EQ(read->jobs[0].rpcs, 20U);
    EXPECT_EQ(read->jobs[0].bytes, 20971520U);
    EXPECT_TRUE(read->jobs[0].since_ns);
  }
}

TEST(Recorded, IdsAsTheModelAndTheParserWriteAndReadThem) {
  for (const char* release : {"2.17.0", "2.17.57"}) {
    const std::string text = read_whole(kRecorded / release / "34-job_stats-escapes.txt");
    int ids = 0;
    const std::regex line("- job_id: +(.*)\n");
    for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at, ++ids) {
      const auto id = lustre::parse_job_id((*at)[1].str());
      ASSERT_TRUE(id) << (*at)[1].str();
      EXPECT_EQ(sim::print_lustre_job(*id), (*at)[1].str());
    }
    EXPECT_GE(ids, 15) << release;
  }
}

TEST(Recorded, TheModelWritesJobStatsAsAServer) {
  sim::LustreServer server({}, Rng(1));
  for (int i = 0; i < 10; ++i) {
    server.arrive({.job = JobId("dd.0"), .bytes = 1048576, .is_read = i % 2 == 0}, {});
  }
  server.run(instant_at(1'000'000'000), [](const auto&, Instant, Instant) {});
  const std::string model = *server.read("/proc/fs/lustre/obdfilter/lustre-OST0000/job_stats", {});
  const auto block = blocks_of(kRecorded / "2.17.57/32-job_stats-catA.txt").at(0);
  const std::string recorded =
      std::regex_replace(block.output.substr(0, block.output.find("- job_id:          iorB")),
                         std::regex("\\$\n"), "\n");
  // Numbers differ; nothing else does.
  const auto form = [](std::string text) {
    text = std::regex_replace(text, std::regex(" +[0-9][0-9.]*"), " N");
    return text;
  };
  EXPECT_EQ(form(model), form(recorded));
}

// An MDT of the same servers: open and mknod of one created file count twice.
TEST(Recorded, JobStatsOfAnMdt) {
  for (const char* release : {"2.17.0", "2.17.57"}) {
    const auto block = blocks_of(kRecorded / release / "32-mdt-job_stats.txt").at(0);
    const auto read =
        lustre::parse_job_stats(without_name(block.output), lustre::Counted::kOperations);
    ASSERT_TRUE(read) << release;
    EXPECT_FALSE(read->is_cut);
    ASSERT_GE(read->jobs.size(), 2U);
    const auto dd = std::find_if(read->jobs.begin(), read->jobs.end(),
                                 [](const auto& job) { return job.job == JobId("dd.0"); });
    ASSERT_NE(dd, read->jobs.end()) << release;
    EXPECT_EQ(dd->operations.at(lustre::operation_of("mknod")), 1U);
    EXPECT_GE(dd->operations.at(lustre::operation_of("open")), 1U);
    EXPECT_EQ(dd->operations.at(lustre::operation_of("mkdir")), 0U);
  }
}

TEST(Recorded, TheModelWritesJobStatsOfAnMdtAsAServer) {
  sim::LustreServer::Options options;
  options.kind = sim::LustreStats::Kind::kMdt;
  options.osts = {"lustre-MDT0000"};
  sim::LustreServer server(options, Rng(1));
  server.arrive({.job = JobId("chmod.0"), .operation = "setattr"}, {});
  server.run(instant_at(1'000'000'000), [](const auto&, Instant, Instant) {});
  const std::string model = *server.read("/proc/fs/lustre/mdt/lustre-MDT0000/job_stats", {});
  const std::string all =
      without_name(blocks_of(kRecorded / "2.17.57/32-mdt-job_stats.txt").at(0).output);
  const std::string recorded = all.substr(0, all.find("- job_id:", all.find("- job_id:") + 1));
  const auto form = [](const std::string& text) {
    return std::regex_replace(text, std::regex(" +[0-9][0-9.]*"), " N");
  };
  EXPECT_EQ(form(model), form(recorded));
  const auto totals =
      lustre::parse_stats(*server.read("/proc/fs/lustre/mdt/lustre-MDT0000/md_stats", {}),
                          lustre::Counted::kOperations);
  ASSERT_TRUE(totals);
  EXPECT_EQ(totals->at(lustre::operation_of("setattr")).samples, 1U);
  EXPECT_GT(totals->at(lustre::operation_of("setattr")).usecs, 0U);
}

// ---- sessions ----

int exit_of(const Result<void>& done) { return done ? 0 : static_cast<int>(done.error().code); }

// Repeats set_param, get_param and printf of ost_io; what it cannot repeat it leaves out.
int repeat(const fs::path& file, sim::LustreServer& server) {
  const std::regex set("lctl set_param ost\\.OSS\\.ost_io\\.(\\w+)='?([^']*)'?");
  const std::regex print("printf '(.*)' > /sys/kernel/debug/lustre/ost/OSS/ost_io/(\\w+)");
  const std::regex get("lctl get_param ost\\.OSS\\.ost_io\\.(\\w+)");
  int repeated = 0;
  for (const Block& block : blocks_of(file)) {
    SCOPED_TRACE(file.filename().string() + ": " + block.command);
    std::smatch found;
    if (std::regex_match(block.command, found, set)) {
      EXPECT_EQ(exit_of(server.write(kService + found[1].str(), found[2].str(), {})), block.exit);
    } else if (std::regex_match(block.command, found, print)) {
      const std::string text = std::regex_replace(found[1].str(), std::regex("\\\\n"), "\n");
      const auto done = server.write(kService + found[2].str(), text, {});
      EXPECT_EQ(done ? 0 : 1, block.exit);
    } else if (std::regex_match(block.command, found, get)) {
      const auto text = server.read(kService + found[1].str(), {});
      EXPECT_EQ(text ? 0 : static_cast<int>(text.error().code), block.exit);
      if (text && block.exit == 0) {
        EXPECT_EQ(without_refs(*text), without_refs(without_name(block.output)));
      }
    } else {
      continue;
    }
    ++repeated;
  }
  return repeated;
}

sim::LustreServer::Options with_cpts(std::uint32_t cpts) {
  sim::LustreServer::Options options;
  options.cpts = cpts;
  return options;
}

TEST(Recorded, RegularAndHighPriorityHeads) {
  sim::LustreServer server(with_cpts(1), Rng(1));
  EXPECT_GE(repeat(kRecorded / "2.17.57/12-reg-hp.txt", server), 14);
}

TEST(Recorded, TheLifeOfRules) {
  sim::LustreServer server(with_cpts(1), Rng(1));
  ASSERT_TRUE(server.write(kService + "nrs_policies", "tbf jobid", {}));
  EXPECT_GE(repeat(kRecorded / "2.17.57/20-rule-life.txt", server), 30);
}

TEST(Recorded, CommandsWithoutTbf) {
  sim::LustreServer server(with_cpts(1), Rng(1));
  EXPECT_EQ(repeat(kRecorded / "2.17.57/23-rule-cmds-when-fifo.txt", server), 4);
}

TEST(Recorded, TwoCptsThatComeToDisagree) {
  sim::LustreServer server(with_cpts(2), Rng(1));
  ASSERT_TRUE(server.write(kService + "nrs_policies", "tbf jobid", {}));
  ASSERT_TRUE(server.write(kService + "nrs_tbf_rule", "start ra jobid={a.0} rate=10", {}));
  EXPECT_EQ(repeat(kRecorded / "2.17.57-2cpt/91-2cpt-rules.txt", server), 1);
  ASSERT_TRUE(server.write(kService + "nrs_tbf_rule", "start slow jobid={dd.0} rate=5", {}));
  EXPECT_EQ(repeat(kRecorded / "2.17.57-2cpt/95-2cpt-partial-change.txt", server), 2);
  EXPECT_GE(repeat(kRecorded / "2.17.57-2cpt/96-2cpt-bad-type.txt", server), 5);
}

// Two commands differ on purpose: see docs/design/rules.md.
TEST(Recorded, CommandsAcceptedAndRefused) {
  sim::LustreServer server(with_cpts(1), Rng(1));
  ASSERT_TRUE(server.write(kService + "nrs_policies", "tbf jobid", {}));
  std::istringstream lines(read_whole(kRecorded / "2.17.57/22-accept-reject-jobid.txt"));
  std::string line;
  std::string command;
  int compared = 0;
  int different = 0;
  while (std::getline(lines, line) && !line.starts_with("$ ")) {
    if (!line.starts_with("   ")) {
      command = std::regex_replace(line, std::regex("\\\\(.)"), "$1");
      // Between commands the recording removed what it had made, and kept `dup`.
      for (const char* name : {"dd", "nl"}) {
        (void)server.write(kService + "nrs_tbf_rule", std::string("stop ") + name, {});
      }
      (void)server.write(kService + "nrs_tbf_rule", "start dup jobid={dup} rate=11", {});
      continue;
    }
    if (!line.starts_with("   exit=")) continue;
    ++compared;
    const int status = exit_of(server.write(kService + "nrs_tbf_rule", command, {}));
    if (status == std::stoi(line.substr(8))) continue;
    ++different;
    EXPECT_NE(command.find("rate=100}"), std::string::npos) << command << ": " << status;
  }
  EXPECT_GE(compared, 60);
  EXPECT_LE(different, 1);
}

TEST(Recorded, TheReplayBites) {
  sim::LustreServer server(with_cpts(1), Rng(1));
  // Without tbf the life of rules cannot be repeated.
  EXPECT_NE(exit_of(server.write(kService + "nrs_tbf_rule", "start a jobid={a} rate=1", {})), 0);
}

}  // namespace
}  // namespace weir
