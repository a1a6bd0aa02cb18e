// SPDX-License-Identifier: Apache-2.0
#include "weir/control/metrics.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace weir::control {
namespace {

Snapshot with_jobs(std::chrono::seconds at, std::size_t count, std::uint64_t finished) {
  Snapshot shot;
  shot.moment.now = Instant{} + at;
  ServiceSnapshot& service = shot.services.emplace_back();
  service.name = "ost_io";
  for (std::size_t i = 0; i < count; ++i) {
    JobSnapshot& job = service.jobs.emplace_back();
    job.job = JobId("j" + std::to_string(i));
    job.finished = finished;
  }
  return shot;
}

std::size_t lines_with(const std::string& page, const std::string& text) {
  std::size_t lines = 0;
  for (std::size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) {
    ++lines;
  }
  return lines;
}

TEST(Metrics, EscapesWhatWouldEndALabelOrALine) {
  EXPECT_EQ(metric_label("a\"b\\c\nd"), "\"a\\\"b\\\\c\\nd\"");
}

TEST(Metrics, OtherJobsAreOneSeriesAndNoneShrinks) {
  Metrics metrics("1.2");
  const std::string first = metrics.scrape(with_jobs(std::chrono::seconds{1}, 200, 5));
  EXPECT_EQ(lines_with(first, "weir_job_requests_total{"), Metrics::kJobsMax + 1);
  EXPECT_NE(first.find("jobid=\"other\"} 750\n"), std::string::npos) << "150 jobs of 5";
  const std::string second = metrics.scrape(with_jobs(std::chrono::seconds{2}, 200, 7));
  EXPECT_NE(second.find("jobid=\"other\"} 1050\n"), std::string::npos);
}

TEST(Metrics, DirectionsAreApartAndTimesAreSums) {
  Snapshot shot = with_jobs(std::chrono::seconds{1}, 1, 5);
  JobSnapshot& job = shot.services[0].jobs[0];
  job.read_bytes = 300;
  job.written_bytes = 7;
  job.wait_ns = 20'000'350'000;
  job.latency_ns = 21'000'000'000;
  Metrics metrics("1.2");
  const std::string page = metrics.scrape(shot);
  const std::string of = "{service=\"ost_io\",jobid=\"j0\"";
  for (const std::string& line : {std::string("weir_build_info{version=\"1.2\"} 1\n"),
                                  "weir_job_requests_total" + of + "} 5\n",
                                  "weir_job_bytes_total" + of + ",direction=\"read\"} 300\n",
                                  "weir_job_bytes_total" + of + ",direction=\"write\"} 7\n",
                                  "weir_job_wait_seconds_total" + of + "} 20.000350000\n",
                                  "weir_job_latency_seconds_total" + of + "} 21.000000000\n"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line;
  }
}

TEST(Metrics, NodesOfTheFirstLevelOfATreeHaveSeries) {
  Snapshot shot = with_jobs(std::chrono::seconds{1}, 1, 5);
  TreeSnapshot& tree = shot.services[0].tree.emplace();
  for (int i = 0; i < 200; ++i) {
    tree.nodes.push_back(
        {.path = std::to_string(i), .level = "project", .share = 40, .record = -i});
  }
  tree.nodes.push_back({.path = "7/1001", .level = "uid", .share = 10});
  Metrics metrics("1.2");
  const std::string page = metrics.scrape(shot);
  EXPECT_NE(page.find("weir_node_share_tokens{service=\"ost_io\",node=\"7\"} 40\n"),
            std::string::npos);
  EXPECT_NE(page.find("weir_node_record_tokens{service=\"ost_io\",node=\"7\"} -7\n"),
            std::string::npos);
  EXPECT_EQ(lines_with(page, "weir_node_share_tokens{"), 100U);
  EXPECT_EQ(lines_with(page, "7/1001"), 0U);
}

TEST(Metrics, SeriesThatDoNotMoveEnd) {
  Metrics metrics("1.2");
  metrics.scrape(with_jobs(std::chrono::seconds{1}, 3, 5));
  const std::string late = metrics.scrape(with_jobs(std::chrono::seconds{400}, 3, 5));
  EXPECT_EQ(lines_with(late, "weir_job_requests_total{"), 1U) << "other alone";
}

TEST(Metrics, AClassThatWasForgottenTakesNothingAway) {
  const auto shot = [](std::chrono::seconds at, std::uint64_t served) {
    Snapshot one;
    one.moment.now = Instant{} + at;
    ServiceSnapshot& service = one.services.emplace_back();
    service.name = "ost_io";
    service.classes.emplace_back().rule = "dd";
    service.classes.back().totals.served = served;
    return one;
  };
  Metrics metrics("1.2");
  metrics.scrape(shot(std::chrono::seconds{1}, 10));
  metrics.scrape(shot(std::chrono::seconds{2}, 3));  // created again
  const std::string page = metrics.scrape(shot(std::chrono::seconds{3}, 4));
  EXPECT_NE(page.find("weir_rule_requests_total{service=\"ost_io\",rule=\"dd\"} 14\n"),
            std::string::npos)
      << page;
}

Snapshot with_lock_clients(std::size_t count, std::size_t first_has) {
  Snapshot shot;
  lock::NamespaceView& view = shot.locks.emplace_back();
  view.name = "locks";
  view.limit = 1000;
  view.granted = 900;
  view.grant_speed = -5;
  for (std::size_t i = 0; i < count; ++i) {
    view.top.push_back({.client = i + 1, .locks = i == 0 ? first_has : 10});
  }
  std::sort(view.top.begin(), view.top.end(),
            [](const auto& a, const auto& b) { return a.locks > b.locks; });
  view.others.locks = 7;
  return shot;
}

TEST(Metrics, HaveLocksOnlyWhereThereIsALockService) {
  Metrics metrics("1.2");
  EXPECT_EQ(metrics.scrape({}).find("weir_lock_"), std::string::npos);
  const std::string page = metrics.scrape(with_lock_clients(3, 50));
  EXPECT_NE(page.find("weir_lock_limit{namespace=\"locks\"} 1000\n"), std::string::npos);
  EXPECT_NE(page.find("weir_lock_granted{namespace=\"locks\"} 900\n"), std::string::npos);
  EXPECT_NE(page.find("weir_lock_grant_speed{namespace=\"locks\"} -5\n"), std::string::npos);
  EXPECT_NE(page.find("weir_lock_client_locks{namespace=\"locks\",client=\"1\"} 50\n"),
            std::string::npos);
  EXPECT_NE(page.find("weir_lock_client_locks{namespace=\"locks\",client=\"other\"} 7\n"),
            std::string::npos);
  EXPECT_NE(page.find("weir_lock_refused_total{namespace=\"locks\",reason=\"too_many\"} 0\n"),
            std::string::npos);
}

TEST(Metrics, FewClientsOfLocksHaveASeriesAndKeepIt) {
  Metrics metrics("1.2");
  const std::string first = metrics.scrape(with_lock_clients(50, 50));
  EXPECT_EQ(lines_with(first, "weir_lock_client_locks{"), LockMetrics::kClientsMax + 1);
  EXPECT_NE(first.find("client=\"other\"} 307\n"), std::string::npos) << "30 of 10, and 7";
  const std::string second = metrics.scrape(with_lock_clients(50, 1));
  EXPECT_NE(second.find("client=\"1\"} 1\n"), std::string::npos) << "among the last, but named";
}

TEST(Metrics, HaveTurnsOfGroupsAndSlicesOnlyWhereThereAreSome) {
  Metrics metrics("1.2");
  EXPECT_EQ(metrics.scrape(with_jobs(std::chrono::seconds{1}, 1, 1)).find("weir_group_"),
            std::string::npos);
  Snapshot shot = with_jobs(std::chrono::seconds{1}, 1, 1);
  EXPECT_EQ(metrics.scrape(shot).find("weir_cluster_"), std::string::npos);
  GroupsSnapshot& groups = shot.services[0].groups.emplace();
  groups.groups = {{"a", 7, 2}, {"others", 3, 0}};
  groups.preferred = "a";
  groups.step = "cluster";
  serve::ClusterStatus& cluster = shot.cluster.emplace();
  cluster.term = 4;
  for (std::size_t i = 0; i < 2 * Metrics::kSlicesMax; ++i) {
    cluster.slices.push_back({.of = "ost_io/r" + std::to_string(i) + "/ops",
                              .milli = static_cast<std::int64_t>(i),
                              .is_leased = true});
  }
  const std::string page = metrics.scrape(shot);
  for (const char* line : {"weir_group_turns_total{service=\"ost_io\",group=\"a\"} 7\n",
                           "weir_group_preferred{service=\"ost_io\",group=\"a\"} 1\n",
                           "weir_group_preferred{service=\"ost_io\",group=\"others\"} 0\n",
                           "weir_group_waiting_queues{service=\"ost_io\",group=\"a\"} 2\n",
                           "weir_group_in_step{service=\"ost_io\"} 1\n",
                           "weir_cluster_in_epoch 0\n", "weir_cluster_term 4\n"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(lines_with(page, "weir_cluster_slice_millis_per_second{"), Metrics::kSlicesMax);
  EXPECT_NE(page.find("{of=\"ost_io/r99/ops\",leased=\"true\"} 99\n"), std::string::npos);
}

Snapshot with_times(std::chrono::seconds at, std::size_t jobs, std::size_t requests) {
  Snapshot shot;
  shot.moment.now = Instant{} + at;
  ServiceSnapshot& service = shot.services.emplace_back();
  service.name = "ost_io";
  for (std::size_t i = 0; i < jobs; ++i) {
    JobTimes times;
    for (std::size_t n = 0; n < requests; ++n) {
      times.start({.arrived = instant_at(0), .started = instant_at(20'000)});
      times.finish({.started = instant_at(0), .ended = instant_at(3'000'000)});
    }
    service.times += times;
    service.job_times.emplace_back(JobId("j" + std::to_string(i)), times);
  }
  return shot;
}

TEST(Metrics, HaveHistogramsOfServicesAndOfAFewJobs) {
  Metrics metrics("1.2");
  const std::string page = metrics.scrape(with_times(std::chrono::seconds{1}, 30, 2));
  for (const char* line :
       {"# TYPE weir_wait_seconds histogram\n",
        "weir_wait_seconds_bucket{service=\"ost_io\",le=\"0.000016384\"} 0\n",
        "weir_wait_seconds_bucket{service=\"ost_io\",le=\"0.000032768\"} 60\n",
        "weir_wait_seconds_bucket{service=\"ost_io\",le=\"68.719476736\"} 60\n",
        "weir_wait_seconds_bucket{service=\"ost_io\",le=\"+Inf\"} 60\n",
        "weir_wait_seconds_sum{service=\"ost_io\"} 0.001200000\n",
        "weir_wait_seconds_count{service=\"ost_io\"} 60\n",
        "weir_device_seconds_count{service=\"ost_io\",direction=\"read\"} 60\n",
        "weir_device_seconds_count{service=\"ost_io\",direction=\"write\"} 0\n",
        "weir_job_wait_seconds_count{service=\"ost_io\",jobid=\"j0\"} 2\n",
        "weir_job_device_seconds_sum{service=\"ost_io\",jobid=\"j0\",direction=\"read\"} "
        "0.006000000\n"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(lines_with(page, "weir_job_wait_seconds_count{"), Metrics::kTimedJobsMax);
  EXPECT_EQ(lines_with(page, "weir_job_device_seconds_count{"), Metrics::kTimedJobsMax)
      << "no series for a direction without requests";
}

TEST(Metrics, NoHistogramShrinksWhenAJobsPageWasTakenMeanwhile) {
  Metrics metrics("1.2");
  metrics.scrape(with_times(std::chrono::seconds{1}, 1, 5));
  // It lost its page, got another and has had two requests since.
  std::string page = metrics.scrape(with_times(std::chrono::seconds{2}, 1, 2));
  EXPECT_NE(page.find("weir_job_wait_seconds_count{service=\"ost_io\",jobid=\"j0\"} 7\n"),
            std::string::npos);
  EXPECT_NE(page.find("weir_wait_seconds_count{service=\"ost_io\"} 5\n"), std::string::npos)
      << "the sum keeps its highest value";
  page = metrics.scrape(with_times(std::chrono::seconds{400}, 0, 0));
  EXPECT_EQ(lines_with(page, "weir_job_wait_seconds_count{"), 0U) << "idle for five minutes";
}

TEST(Metrics, HaveBoundedSeriesWith10000Jobs) {
  Snapshot shot = with_jobs(std::chrono::seconds{1}, 10'000, 5);
  Snapshot timed = with_times(std::chrono::seconds{1}, 20, 1);
  shot.services[0].times = timed.services[0].times;
  shot.services[0].job_times = timed.services[0].job_times;
  for (std::size_t i = 0; i < 10'000; ++i) {
    ClassSnapshot& one = shot.services[0].classes.emplace_back();
    one.rule = "default";
    one.key.job = JobId("j" + std::to_string(i));
    one.totals.served = 5;
  }
  Metrics metrics("1.2");
  const std::string page = metrics.scrape(shot);
  EXPECT_LT(std::count(page.begin(), page.end(), '\n'), 4000);
  EXPECT_NE(page.find("rule=\"default\"} 50000\n"), std::string::npos);
}

}  // namespace
}  // namespace weir::control
