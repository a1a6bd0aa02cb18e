// SPDX-License-Identifier: Apache-2.0
//
// Common code of the actions of weir lustre: their arguments, and how they are read. One file for
// each group of actions:
//
//   lustre.cc          the command line, and check
//   lustre_run.cc      run, which adjusts the rules
//   lustre_record.cc   record and what-if
//   lustre_show.cc     status, top, explain, ledger, metrics and limit, through the control socket
//                      of a run
//   lustre_node.cc     --cluster of run, in the program with gRPC
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/lustre_cluster.h"
#include "apps/weir/remote.h"
#include "weir/adapt/rule_controller.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/config/slurm.h"
#include "weir/lustre/names.h"
#include "weir/lustre/observer.h"
#include "weir/lustre/recorder.h"
#include "weir/lustre/server.h"
#include "weir/lustre/tree.h"

namespace weir::app {

struct LustreArguments {
  std::string action;
  std::string object;              // a recording, a job, or start, change, stop or list
  std::vector<std::string> words;  // of limit
  std::string root;
  std::string map = "/var/lib/weir/lustre.map";
  std::string prefix{lustre::Names::kPrefixDefault};
  std::string algorithm = "weir";
  std::optional<std::string> period;
  std::string capacity = "auto";
  std::string dead_man = "5s";
  std::string lctl = "auto";
  std::string lctl_program = "lctl";
  std::optional<std::string> nodes;
  std::string job_pattern = "%j";
  std::string slurm_every = "10s";
  std::string squeue = "squeue";
  std::string size = "100MB";
  std::vector<std::string> services;
  std::string costs = "measured";
  Remote remote;
  std::string control_tcp;
  std::string control_token;  // file
  std::string cluster;        // configuration file
  std::optional<std::string> job_facts;
  OpenLustreCluster open_cluster = nullptr;
  std::uint64_t rounds = 0;
  std::uint32_t step = 10;
  bool dry_run = false;
  bool set_policy = false;
  bool slurm = false;
  bool verbose = false;
};

// Where `weir lustre run` listens, and the other actions ask, unless they are told otherwise.
inline constexpr const char* kLustreSocket = "/run/weir-lustre.sock";

// The services whose rules can be adjusted.
inline constexpr const lustre::Service* kLustreServices[] = {
    &lustre::kOstService, &lustre::kMdtService, &lustre::kReadpageService, &lustre::kMdtIoService};

lustre::HostTree::Options tree_options(const LustreArguments& arguments);
Exit exit_for(const Error& error);
[[noreturn]] void give_up(const Error& error);
Nanoseconds duration_of(const std::string& text, const char* option, Nanoseconds least,
                        Nanoseconds most);
// --algorithm, --period, --step and --capacity.
RuleController::Options controller_options(const LustreArguments& arguments);
std::vector<config::JobNodes> nodes_of(const LustreArguments& arguments);
// Those of --service; else ost_io and mdt, if targets of them are mounted. Never none: what is
// missing is reported where it is used.
std::vector<const lustre::Service*> services_of(const LustreArguments& arguments,
                                                lustre::Tree& tree);
// Each service has a map of its own, since a name may be taken on one and free on the other.
std::string map_path(const LustreArguments& arguments, const lustre::Service& service);
// --costs.
lustre::Costing costing_of(const LustreArguments& arguments);
// Of the map, if there is a file: it has its first line at least, so an empty one was truncated by
// another program.
lustre::Names read_names(const LustreArguments& arguments, const std::string& path,
                         const std::optional<std::string>& map);
int run_lustre(const LustreArguments& arguments);
int record_lustre(const LustreArguments& arguments);
int decide_over_recording(const LustreArguments& arguments);
// status, top, explain, ledger and metrics of a running driver.
int show_lustre(const LustreArguments& arguments);
// The limits of the cluster, through a running driver.
int limit_lustre(const LustreArguments& arguments);

}  // namespace weir::app
