// SPDX-License-Identifier: Apache-2.0
//
// weir lustre run: the loop of the drivers of a node, one for each service, with their guard, their
// map, Slurm and the control socket.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include "apps/weir/lustre.h"
#include "apps/weir/lustre_control.h"
#include "apps/weir/slurm_poll.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/config/serve_config.h"
#include "weir/control/audit.h"
#include "weir/host/clock.h"
#include "weir/host/files.h"
#include "weir/host/heap.h"
#include "weir/host/signals.h"
#include "weir/host/state_file.h"
#include "weir/host/timer_fd.h"
#include "weir/lustre/driver.h"
#include "weir/lustre/guard.h"
#include "weir/lustre/status.h"
#include "weir/serve/plain_text.h"

namespace weir::app {
namespace {

// In a row, while the server can be read: waiting would not help.
constexpr int kFailedWritesMax = 20;
// Rounds in a row that take more than half of the period, before it is lengthened.
constexpr int kSlowRounds = 5;
// The guard of a run that has just died may still be running.
constexpr Nanoseconds kLockPatience = std::chrono::seconds{3};
constexpr Nanoseconds kLockPause = std::chrono::milliseconds{50};
// Between two updates of what the control socket shows.
constexpr Nanoseconds kPublishEvery = std::chrono::milliseconds{200};
// Lines of the summary of a dry run.
constexpr std::size_t kSummaryMax = 20;

static_assert(lustre::Names::kTextMax <= host::StateFile::kSizeMax);

// Of something that another process may still hold.
template <class Open>
auto open_patiently(Open open, const char* option) {
  for (Nanoseconds waited{0};; waited += kLockPause) {
    auto opened = open();
    if (opened || opened.error().code != std::errc::device_or_resource_busy ||
        waited >= kLockPatience) {
      return value_or_fail(std::move(opened), Exit::kCantCreate, option);
    }
    poll(nullptr, 0, static_cast<int>(kLockPause / std::chrono::milliseconds{1}));
  }
}

// Of one service, in the process of the guard.
void remove_rules_of(const LustreArguments& arguments, const lustre::Service& service,
                     lustre::Guard::Reason reason) {
  const std::string path = map_path(arguments, service);
  std::optional<host::StateFile> lock;
  const auto text = host::read_file(path);
  if (!text) return;  // no rule was ever started
  if (reason == lustre::Guard::Reason::kGone) {
    auto file = host::StateFile::open(path);
    if (file) {
      lock.emplace(std::move(*file));
    } else if (file.error().code == std::errc::device_or_resource_busy) {
      return;  // another run has taken over
    }
  }
  auto names = lustre::Names::read(arguments.prefix, *text);
  if (!names) return;
  lustre::HostTree tree(tree_options(arguments));
  lustre::Driver::Options options;
  options.service = &service;
  lustre::Driver driver(
      options, tree, *names, [](std::string_view) { return Result<void>{}; },
      [](std::string_view, std::string_view) {});
  const auto removed = driver.remove_all();
  // A run that never started, or had no rules, leaves nothing to report.
  if (removed && driver.counters().writes == 0) return;
  print_error("weir lustre: guard: the driver {}; its rules on {} {}\n",
              reason == lustre::Guard::Reason::kGone ? "is gone" : "hangs", service.name,
              removed ? "are removed" : "cannot be removed: " + removed.error().message());
}

// Called by the guard.
void remove_rules(const LustreArguments& arguments, lustre::Guard::Reason reason) {
  const host::LogWriter log;
  for (const lustre::Service* service : kLustreServices) {
    remove_rules_of(arguments, *service, reason);
  }
}

class LustreRun {
 public:
  explicit LustreRun(const LustreArguments& arguments)
      : arguments_(arguments),
        controller_(controller_options(arguments)),
        period_(controller_.period),
        tree_(tree_options(arguments)) {}

  int run() {
    host::pin_heap_thresholds();
    read_options();
    if (!arguments_.dry_run) {
      guard_.emplace(value_or_fail(
          lustre::Guard::start(patience_, [&](auto reason) { remove_rules(arguments_, reason); }),
          Exit::kIoErr, ""));
      server_lock_ = open_patiently([&] { return tree_.lock_server(); }, "");
    }
    const host::LogWriter log;  // created after the guard is forked, because it has a thread
    if (!prepare_services()) return 0;
    auto signals = value_or_fail(host::SignalFd::create({SIGTERM, SIGINT}), Exit::kIoErr, "");
    auto timer = value_or_fail(host::TimerFd::create(), Exit::kIoErr, "");
    const auto leave = [](LustreRun* run) { run->leave_cluster(); };
    const std::unique_ptr<LustreRun, decltype(leave)> leaves(this, leave);
    join_cluster();
    open_control();
    if (arguments_.slurm) {
      slurm_.emplace(arguments_.squeue, slurm_every_);
    }
    host::notify_manager("READY=1");
    in_files_before_ = tree_.in_files();
    print_error("weir lustre: adjusting the rules of {} every {}{}{}\n", services_text(),
                print_duration(period_),
                arguments_.algorithm == "paper" ? " with the published algorithm" : "",
                arguments_.dry_run ? " (dry run)" : "");
    loop(signals, timer);
    leave_cluster();
    return finish();
  }

 private:
  struct Served {
    const lustre::Service* service;
    std::unique_ptr<lustre::JobLimits> limits;  // in a cluster
    std::unique_ptr<lustre::ShareParts> parts;
    std::unique_ptr<lustre::Driver> driver;
    lustre::StatusKeeper keeper;
    std::string told;  // the problem that was reported last
    std::optional<Instant> policy_set_at = {};
    std::uint64_t failed_writes = 0;  // at the last round
    std::uint64_t writes = 0;
    int failed_in_a_row = 0;
  };

  // Parses all options before anything is started, so that an error needs no cleanup.
  void read_options() {
    if (arguments_.slurm) {
      pattern_ = value_or_fail(config::JobPattern::parse(arguments_.job_pattern), Exit::kUsage,
                               "--job-pattern");
      slurm_every_ = duration_of(arguments_.slurm_every, "--slurm-every", std::chrono::seconds{1},
                                 std::chrono::hours{1});
    }
    patience_ = duration_of(arguments_.dead_man, "--dead-man", period_ * 2, std::chrono::hours{1});
    nodes_ = nodes_of(arguments_);
    costing_ = costing_of(arguments_);
    read_cluster();
    (void)read_names(arguments_, arguments_.map, std::nullopt);
  }

  void read_cluster() {
    if (arguments_.cluster.empty()) {
      if (!arguments_.job_facts) return;
      throw Failure{Exit::kUsage, "--job-facts: is for limits of a cluster; add --cluster FILE"};
    }
    if (arguments_.open_cluster == nullptr) {
      throw Failure{Exit::kUsage,
                    "--cluster: this program cannot join a cluster; install Weir and run 'weir "
                    "lustre run'"};
    }
    if (arguments_.dry_run) {
      throw Failure{Exit::kUsage,
                    "--cluster: a dry run cannot join, because it would hold slices of limits that "
                    "it does not use; omit one of both"};
    }
    auto options =
        value_or_fail(config::load_serve_config(arguments_.cluster), Exit::kConfig, "--cluster");
    if (!options.cluster.is_on()) {
      throw Failure{Exit::kConfig, fmt::format("--cluster {}: has no section [cluster]; see "
                                               "weir.conf(5)",
                                               quote(arguments_.cluster))};
    }
    for (const std::string& warning : serve::plain_text_warnings(options)) {
      print_error("weir lustre: {}\n", warning);
    }
    cluster_options_ = std::move(options.cluster);
    const std::string table =
        arguments_.job_facts
            ? value_or_fail(host::read_file(*arguments_.job_facts), Exit::kNoInput, "--job-facts")
            : std::string();
    const auto pattern = lustre::JobFacts::parse(arguments_.job_pattern, "");
    if (!pattern) throw Failure{Exit::kUsage, "--job-pattern: " + pattern.error().message()};
    facts_ = value_or_fail(lustre::JobFacts::parse(arguments_.job_pattern, table), Exit::kDataErr,
                           "--job-facts");
  }

  // With the limits of the last run, before etcd is asked.
  void join_cluster() {
    if (!cluster_options_) return;
    std::vector<LustreCluster::Service> services;
    for (Served& served : services_) {
      services.push_back(
          {std::string(served.service->name), served.limits.get(), served.parts.get()});
    }
    auto cluster = arguments_.open_cluster(*cluster_options_, std::move(services));
    if (!cluster) {
      throw Failure{
          cluster.error().code == std::errc::invalid_argument ? Exit::kConfig : Exit::kCantCreate,
          "--cluster: " + cluster.error().message()};
    }
    cluster_ = *std::move(cluster);
    cluster_->start();
    print_error("weir lustre: server {} of a cluster, at port {}\n", cluster_options_->name,
                cluster_->listening());
  }

  // The other servers, and requests through the control socket, before what they use.
  void leave_cluster() {
    if (cluster_) cluster_->stop();
    control_.reset();
    cluster_.reset();
  }

  AlsoWaitFor waits_for_cluster() {
    if (!cluster_) return {};
    return {.fd = cluster_->fd(),
            .wakes_at = [this] { return cluster_->wakes_at(); },
            .wake =
                [this](Instant now) {
                  cluster_->wake(now);
                  for (Served& served : services_) note(served, served.driver->apply_limits(now));
                }};
  }

  std::string services_text() const {
    std::string text;
    for (const Served& served : services_) {
      text += (text.empty() ? "" : " and ") + std::string(served.service->name);
    }
    return text;
  }

  // False if there is nothing to do: a dry run does not start tbf.
  bool prepare_services() {
    const auto services = services_of(arguments_, tree_);
    for (const lustre::Service* service : services) {
      open_map(*service);
      if (is_left_alone(*service, services)) continue;
      if (const auto cpts = prepare_policy(*service)) make_driver(*service, *cpts);
    }
    if (controller_.capacity && services_.size() > 1) {
      throw Failure{Exit::kUsage,
                    fmt::format("--capacity: is of one service, and this node has {}; name one "
                                "with --service",
                                services_text())};
    }
    return !services_.empty();
  }

  // Also of a service that is left alone: its map is locked, and the guard may look for its rules.
  void open_map(const lustre::Service& service) {
    const std::string path = map_path(arguments_, service);
    std::optional<std::string> text;
    if (!arguments_.dry_run) {
      auto& map = maps_[&service];
      map = std::make_unique<host::StateFile>(
          open_patiently([&] { return host::StateFile::open(path); }, "--map"));
      if (!map->is_new()) text = map->text();
    }
    names_[&service] = std::make_unique<lustre::Names>(read_names(arguments_, path, text));
  }

  // A node with OSTs and MDTs may run tbf for one of its services only.
  bool is_left_alone(const lustre::Service& service,
                     const std::vector<const lustre::Service*>& services) {
    if (!arguments_.services.empty() || arguments_.set_policy) return false;
    const auto ready = [this](const lustre::Service& each) {
      const auto policies = lustre::policies_of(tree_, each);
      return policies ? lustre::type_of(*policies, each).map([](const auto&) {})
                      : Result<void>(tl::unexpected(policies.error()));
    };
    const auto own = ready(service);
    const bool others = std::any_of(services.begin(), services.end(), [&](const auto* each) {
      return each != &service && ready(*each).has_value();
    });
    if (own || !others) return false;
    print_error("weir lustre: {} is left alone: {}\n", service.name, own.error().message());
    return true;
  }

  // The number of CPTs that the service uses; the server may have more. None in a dry run that
  // would have to start tbf first.
  std::optional<std::uint32_t> prepare_policy(const lustre::Service& service) {
    const auto policies = lustre::policies_of(tree_, service);
    const auto type = policies ? lustre::type_of(*policies, service)
                               : Result<std::string>(tl::unexpected(policies.error()));
    const bool is_curable = policies || policies.error().code == std::errc::invalid_argument;
    if (!type && arguments_.set_policy && arguments_.dry_run && is_curable) {
      for (const char* const command : {"fifo", "tbf jobid"}) {
        fmt::print("{:<60} # nrs_policies: {}\n", command, type.error().what);
      }
      print_error("weir lustre: without tbf there are no rules to show\n");
      return std::nullopt;
    }
    if (!type && arguments_.set_policy) {
      const auto wait = [] { return poll(nullptr, 0, 50) == 0; };
      print_error("weir lustre: starting 'tbf jobid' on {}\n", service.name);
      const auto set = lustre::set_policy(tree_, wait, service);
      if (!set) give_up(set.error());
    } else if (!type) {
      give_up(type.error());
    }
    const auto view = lustre::look(tree_, service);
    if (!view) give_up(view.error());
    return static_cast<std::uint32_t>(view->rules.regular.size());
  }

  void make_driver(const lustre::Service& service, std::uint32_t cpts) {
    lustre::Driver::Options options;
    options.dry_run = arguments_.dry_run;
    options.controller = controller_;
    options.controller.cpts = cpts;
    options.controller.depth = lustre::depth_of(tree_);
    options.patience = patience_;
    options.service = &service;
    options.costing = costing_;
    auto driver = std::make_unique<lustre::Driver>(
        options, tree_, *names_.at(&service),
        [map = maps_[&service].get()](std::string_view text) { return map->replace(text); },
        [this](std::string_view command, std::string_view reason) {
          if (!arguments_.dry_run && !arguments_.verbose) return;
          fmt::print("{:<60} # {}\n", command, reason);
          std::fflush(stdout);
        });
    driver->on_written(
        [&service](const lustre::Driver::Written& written) { audit(service, written); });
    std::unique_ptr<lustre::JobLimits> limits;
    std::unique_ptr<lustre::ShareParts> parts;
    if (cluster_options_) {
      limits = std::make_unique<lustre::JobLimits>(lustre::JobLimits::Options{
          .cpts = cpts, .depth = options.controller.depth, .facts = facts_});
      parts = std::make_unique<lustre::ShareParts>();
      driver->set_limits(limits.get());
      driver->set_parts(parts.get());
    }
    for (const config::JobNodes& size : nodes_) {
      check(driver->set_nodes(JobId(size.job), size.nodes), Exit::kDataErr, "--nodes");
    }
    services_.push_back({.service = &service,
                         .limits = std::move(limits),
                         .parts = std::move(parts),
                         .driver = std::move(driver),
                         .keeper = {},
                         .told = {}});
  }

  // The generation is the number of the period.
  static void audit(const lustre::Service& service, const lustre::Driver::Written& written) {
    const auto text = [](std::optional<std::uint32_t> rate) {
      return rate ? fmt::format("{}/s", *rate) : std::string("none");
    };
    const std::string line = control::audit_line(
        {.who = fmt::format("weir lustre pid {}", getpid()),
         .what = std::string(written.command),
         .on = std::string(service.parameter) + ".nrs_tbf_rule",
         .before = text(written.before),
         .after = fmt::format("{}, because {}", text(written.after), written.reason),
         .generation = std::to_string(written.round),
         .error = written.error == nullptr ? std::string() : written.error->what});
    print_error("{}\n", line);
  }

  // A failure of the default socket, which was not requested explicitly, is not fatal.
  void open_control() {
    std::string path = arguments_.remote.socket;
    const bool is_asked = !path.empty();
    if (!is_asked && arguments_.root.empty() && !arguments_.dry_run) path = kLustreSocket;
    if (path == "none") path.clear();
    if (path.empty() && arguments_.control_tcp.empty()) return;
    auto tokens = value_or_fail(control::read_tokens(arguments_.control_token), Exit::kNoInput,
                                "--control-token: ");
    const control::HttpOptions wanted{
        .socket_path = path, .tcp = arguments_.control_tcp, .tokens = std::move(tokens)};
    if (auto checked = control::check(wanted); !checked) {
      throw Failure{Exit::kUsage, "--control-tcp: " + checked.error().message()};
    }
    auto opened = LustreControl::create(wanted, cluster_ ? &cluster_->port() : nullptr);
    if (opened) {
      control_ = *std::move(opened);
      if (!wanted.tcp.empty()) {
        print_error("weir lustre: the console is at port {} of {}\n", control_->tcp_port(),
                    wanted.tcp.substr(0, wanted.tcp.rfind(':')));
      }
    } else if (is_asked || !wanted.tcp.empty()) {
      throw Failure{Exit::kCantCreate, "--control: " + opened.error().message()};
    } else {
      print_error("weir lustre: no control socket: {}\n", opened.error().message());
    }
  }

  void publish(Instant now) {
    for (Served& served : services_) served.keeper.count(*served.driver, now);
    if (!control_ || (published_at_ && now - *published_at_ < kPublishEvery)) return;
    published_at_ = now;
    std::vector<lustre::Status> statuses;
    statuses.reserve(services_.size());
    for (const Served& served : services_) {
      statuses.push_back(served.keeper.status(*served.driver, now));
    }
    control_->publish(std::move(statuses), host::wall_now());
  }

  void loop(host::SignalFd& signals, host::TimerFd& timer) {
    const auto take = [this](std::string_view text) { take_sizes(text); };
    // The published algorithm looks once in a period.
    const bool is_paper = controller_.mode == RuleController::Mode::kPaper;
    const int parts = is_paper ? 1 : lustre::Driver::kGlances;
    const AlsoWaitFor also = waits_for_cluster();
    Instant next = host::now();
    for (std::uint64_t rounds = 0; arguments_.rounds == 0 || rounds < arguments_.rounds; ++rounds) {
      if (guard_) guard_->beat();
      const Instant began = host::now();
      for (Served& served : services_) one_round(served);
      keep_period(host::now() - began);
      publish(host::now());
      const Nanoseconds part = period_ / parts;
      for (int glances = 0; glances < parts; ++glances) {
        if (glances > 0) {
          for (Served& served : services_) one_glance(served);
        }
        next = std::max(next + part, host::now() + part / 4);  // never a busy loop
        timer.arm(next);
        if (!wait_for(timer, signals, slurm_, take, also)) return;
      }
    }
  }

  // A period that rounds cannot keep, because there are many jobs, is lengthened so that at most
  // half of it is spent in rounds.
  void keep_period(Nanoseconds took) {
    slow_rounds_ = took > period_ / 2 ? slow_rounds_ + 1 : 0;
    if (took > period_) ++late_rounds_;
    const Nanoseconds longest = std::min<Nanoseconds>(std::chrono::seconds{10}, patience_ / 2);
    if (slow_rounds_ < kSlowRounds || period_ >= longest) return;
    slow_rounds_ = 0;
    period_ = std::min(std::max(took * 2, period_ * 3 / 2), longest);
    if (std::exchange(told_period_, true)) return;
    print_error(
        "weir lustre: a round takes {}, too long for a period of {}; the period is {} now and "
        "may grow further\n",
        print_duration(std::chrono::ceil<std::chrono::milliseconds>(took)),
        print_duration(controller_.period),
        print_duration(std::chrono::ceil<std::chrono::milliseconds>(period_)));
  }

  void take_sizes(std::string_view text) {
    auto jobs = config::SlurmJobs::parse(text);
    if (!jobs) return tell(services_.front(), jobs.error().message());
    slurm_jobs_ = std::move(*jobs);
    set_sizes();
  }

  std::size_t jobs_seen() const {
    std::size_t count = 0;
    for (const Served& served : services_) count += served.driver->controller().demands().size();
    return count;
  }

  // If Slurm does not know the ids, those of the server's jobs are used.
  void set_sizes() {
    std::vector<std::string> seen;
    if (!pattern_->is_known()) {
      for (const Served& served : services_) {
        for (const JobDemand& demand : served.driver->controller().demands()) {
          seen.emplace_back(demand.job.text());
        }
      }
      std::sort(seen.begin(), seen.end());
      seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    }
    sized_ = jobs_seen();
    const config::SlurmJobs::Sizes sizes = slurm_jobs_->sizes(*pattern_, seen);
    for (Served& served : services_) {
      for (const JobId& job : sizes_) served.driver->forget_nodes(job);
    }
    sizes_.clear();
    for (const config::JobNodes& size : sizes.jobs) {
      const JobId job(size.job);
      bool is_set = false;
      for (Served& served : services_) {
        is_set = served.driver->set_nodes(job, size.nodes).has_value() || is_set;
      }
      if (is_set) sizes_.push_back(job);
    }
    if (sizes.shared == shared_ && sizes.unknown == unknown_) return;
    shared_ = sizes.shared;
    unknown_ = sizes.unknown;
    print_error(
        "weir lustre: of {} job ids, {} belong to hosts that several jobs share and {} to no job "
        "that Slurm knows; each counts as one node\n",
        seen.size(), shared_, unknown_);
  }

  void size_new_jobs() {
    const bool by_seen = slurm_jobs_ && !pattern_->is_known();
    if (by_seen && jobs_seen() != sized_) set_sizes();
  }

  void one_round(Served& served) {
    const Instant began = host::now();
    const auto done = served.driver->round(began);
    in_rounds_ += host::now() - began;
    for (const std::string& news : served.driver->take_news()) {
      print_error("weir lustre: {}: {}\n", served.service->name, news);
    }
    if (done) {
      if (!served.told.empty()) print_error("weir lustre: working again\n");
      served.told.clear();
      size_new_jobs();
    } else if (!keeps_policy(served, done.error())) {
      note(served, done);
    }
    if (!has_given_up_writing(served)) return;
    const bool removed = remove_all();
    if (removed && guard_) guard_->dismiss();
    throw Failure{Exit::kTempFail,
                  fmt::format("writes failed in {} consecutive rounds; the rules were {}",
                              kFailedWritesMax, removed ? "removed" : "left to the guard")};
  }

  bool remove_all() {
    bool is_done = true;
    for (Served& served : services_) is_done = served.driver->remove_all() && is_done;
    return is_done;
  }

  // A server that was restarted runs fifo. With --set-policy, tbf is started again, at most once in
  // the time after which the guard acts. False: the error is another one.
  bool keeps_policy(Served& served, const Error& error) {
    const bool is_off = error.code == std::errc::no_such_device;
    if (!arguments_.set_policy || arguments_.dry_run || !is_off) return false;
    const Instant now = host::now();
    if (served.policy_set_at && now - *served.policy_set_at < patience_) return true;
    served.policy_set_at = now;
    const auto policies = lustre::policies_of(tree_, *served.service);
    if (!policies || lustre::type_of(*policies, *served.service)) return false;
    print_error("weir lustre: tbf does not run on {}; starting 'tbf jobid' again\n",
                served.service->name);
    note(served, lustre::set_policy(
                     tree_,
                     [&] {
                       if (guard_) guard_->beat();
                       return host::now() < now + patience_ && poll(nullptr, 0, 50) == 0;
                     },
                     *served.service));
    return true;
  }

  // A round without writes, including its glances, gives no information about the server.
  static bool has_given_up_writing(Served& served) {
    const auto& counters = served.driver->counters();
    const bool failed = counters.failed_writes != served.failed_writes;
    const bool wrote = counters.writes != served.writes;
    served.failed_writes = counters.failed_writes;
    served.writes = counters.writes;
    if (failed) ++served.failed_in_a_row;
    if (wrote) served.failed_in_a_row = 0;
    return served.failed_in_a_row >= kFailedWritesMax;
  }

  void one_glance(Served& served) {
    const Instant began = host::now();
    note(served, served.driver->glance(began));
    in_rounds_ += host::now() - began;
  }

  static void note(Served& served, const Result<void>& done) {
    if (!done) tell(served, done.error().message());
  }

  // Logs the same problem once.
  static void tell(Served& served, const std::string& message) {
    if (message == served.told) return;
    served.told = message;
    print_error("weir lustre: {}; trying again\n", message);
  }

  // Which jobs would have been held.
  void summarize(const Served& served) const {
    auto jobs = served.driver->holds().list(host::now());
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const auto& a, const auto& b) { return a.hold.total > b.hold.total; });
    fmt::print("{}: {}\n", served.service->name,
               jobs.empty() ? "no job would have been held" : "jobs that would have been held");
    for (std::size_t i = 0; i < std::min(jobs.size(), kSummaryMax); ++i) {
      const lustre::Hold& hold = jobs[i].hold;
      fmt::print("  {:<32} {} time{}, {} in all, {} at most, lowest rate {}\n",
                 quote(jobs[i].job.text()), hold.times, hold.times == 1 ? "" : "s",
                 print_duration(std::chrono::ceil<std::chrono::milliseconds>(hold.total)),
                 print_duration(std::chrono::ceil<std::chrono::milliseconds>(hold.longest)),
                 hold.lowest);
    }
    if (jobs.size() > kSummaryMax) fmt::print("  and {} other jobs\n", jobs.size() - kSummaryMax);
    std::fflush(stdout);
  }

  int finish() {
    const Nanoseconds in_files = tree_.in_files() - in_files_before_;
    lustre::Driver::Counters sum;
    for (Served& served : services_) {
      if (arguments_.dry_run) {
        summarize(served);
      } else if (const auto removed = served.driver->remove_all(); !removed) {
        give_up(removed.error());
      }
      const auto& counters = served.driver->counters();
      sum.rounds = std::max(sum.rounds, counters.rounds);
      sum.writes += counters.writes;
      sum.failed_writes += counters.failed_writes;
      sum.repairs += counters.repairs;
    }
    if (guard_) guard_->dismiss();
    const auto rounds = static_cast<std::int64_t>(std::max<std::uint64_t>(sum.rounds, 1));
    const auto us = [&](Nanoseconds time) { return time.count() / rounds / 1000; };
    print_error(
        "weir lustre: {} rounds, {} late, {} writes, {} failed, {} repairs, {} processes of lctl; "
        "{} us a round and {} us in files\n",
        sum.rounds, late_rounds_, sum.writes, sum.failed_writes, sum.repairs, tree_.lctl_started(),
        us(in_rounds_ - in_files), us(in_files));
    return 0;
  }

  const LustreArguments& arguments_;
  RuleController::Options controller_;
  Nanoseconds period_;  // now; it may be lengthened
  Nanoseconds patience_{0};
  Nanoseconds slurm_every_{0};
  std::vector<config::JobNodes> nodes_;
  lustre::HostTree tree_;
  std::optional<lustre::Guard> guard_;
  host::Fd server_lock_;
  lustre::Costing costing_;
  std::map<const lustre::Service*, std::unique_ptr<host::StateFile>> maps_;  // not in a dry run
  std::map<const lustre::Service*, std::unique_ptr<lustre::Names>> names_;
  std::vector<Served> services_;
  std::optional<serve::ClusterOptions> cluster_options_;
  lustre::JobFacts facts_;
  std::unique_ptr<LustreCluster> cluster_;
  std::unique_ptr<LustreControl> control_;
  std::optional<Instant> published_at_;
  std::optional<SlurmPoll> slurm_;
  std::optional<config::JobPattern> pattern_;
  std::optional<config::SlurmJobs> slurm_jobs_;
  std::vector<JobId> sizes_;
  std::size_t sized_ = 0;  // ids that were seen then
  std::uint64_t shared_ = 0;
  std::uint64_t unknown_ = 0;
  Nanoseconds in_rounds_{0};
  int slow_rounds_ = 0;  // in a row
  std::uint64_t late_rounds_ = 0;
  bool told_period_ = false;
  Nanoseconds in_files_before_{0};
};

}  // namespace

int run_lustre(const LustreArguments& arguments) { return LustreRun(arguments).run(); }

}  // namespace weir::app
