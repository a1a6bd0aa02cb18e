// SPDX-License-Identifier: Apache-2.0
#include "weir/study/lock_study.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weir/study/report_page.h"

namespace weir::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPage = "lock-report.js";

// Six decimal places are enough, and the same on every machine.
double rounded(double value) { return std::round(value * 1e6) / 1e6; }

double of_limit(const sim::LockOutcome& outcome, double locks) {
  return locks / static_cast<double>(outcome.limit);
}

double part(std::uint64_t some, std::uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(some) / static_cast<double>(all);
}

Json outcome_json(const sim::LockOutcome& outcome) {
  const auto share = [&](std::int64_t locks) {
    return rounded(of_limit(outcome, static_cast<double>(locks)));
  };
  return {{"appetite", sim::appetite_name(outcome.appetite)},
          {"policy", outcome.contender.name()},
          {"granted_most", share(outcome.granted_most)},
          {"settled_least", share(outcome.settled_least)},
          {"settled_most", share(outcome.settled_most)},
          {"settled_mean", rounded(of_limit(outcome, outcome.settled_mean))},
          {"proportion_error", rounded(outcome.proportion_error)},
          {"proportion_error_mean", rounded(outcome.proportion_error_mean)},
          {"uses", outcome.uses},
          {"hits", outcome.hits},
          {"messages", outcome.messages},
          {"enqueues", outcome.enqueues},
          {"cancels", outcome.cancels},
          {"cancels_for_volume", outcome.cancels_for_volume},
          {"lost", outcome.lost},
          {"evictions", outcome.evictions},
          {"common_uses", outcome.common_uses},
          {"findings", outcome.findings}};
}

Json study_json(const LockStudy& study) {
  Json json = {{"scenario", study.scenario.name},
               {"title", study.scenario.title},
               {"seed", study.seed},
               {"limit", study.scenario.limit},
               {"clients", study.scenario.clients},
               {"settled_s", rounded(static_cast<double>(study.scenario.settled.count()) / 1e9)},
               {"runs", Json::array()}};
  for (const sim::LockOutcome& outcome : study.outcomes) {
    json["runs"].push_back(outcome_json(outcome));
  }
  return json;
}

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string lock_table_text(const LockStudy& study) {
  std::string text = fmt::format("{:<9}{:<9}{:>27}{:>9}{:>10}{:>8}{:>11}{:>11}{:>9}\n", "", "",
                                 "granted of the limit", "", "off its", "", "", "dropped", "");
  text += fmt::format("{:<9}{:<9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>8}{:>11}{:>11}{:>9}\n", "appetite",
                      "policy", "least", "mean", "most", "ever", "share", "hits", "messages",
                      "for volume", "lost");
  for (const sim::LockOutcome& outcome : study.outcomes) {
    const auto percent = [](double value) { return fmt::format("{:.1f} %", value * 100); };
    const auto share = [&](std::int64_t locks) {
      return percent(of_limit(outcome, static_cast<double>(locks)));
    };
    text +=
        fmt::format("{:<9}{:<9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>8}{:>11}{:>11}{:>9}\n",
                    sim::appetite_name(outcome.appetite), outcome.contender.name(),
                    share(outcome.settled_least), percent(of_limit(outcome, outcome.settled_mean)),
                    share(outcome.settled_most), share(outcome.granted_most),
                    percent(outcome.proportion_error), percent(part(outcome.hits, outcome.uses)),
                    outcome.messages, outcome.cancels_for_volume, outcome.lost);
  }
  return text;
}

std::string lock_result_json(const LockStudy& study) {
  return text_of(study_json(study), 2) + "\n";
}

std::string locks_csv(const LockStudy& study) {
  std::string csv = "appetite,policy,time_s,granted,volume,grants,cancels\n";
  for (const sim::LockOutcome& outcome : study.outcomes) {
    for (std::size_t i = 0; i < outcome.samples.size(); ++i) {
      const sim::LockSample& sample = outcome.samples[i];
      fmt::format_to(std::back_inserter(csv), "{},{},{},{},{},{},{}\n",
                     sim::appetite_name(outcome.appetite), outcome.contender.name(), i + 1,
                     sample.granted, sample.volume, sample.grants, sample.cancels);
    }
  }
  return csv;
}

std::string lock_clients_csv(const LockStudy& study) {
  std::string csv = "appetite,policy,client,rate,held\n";
  for (const sim::LockOutcome& outcome : study.outcomes) {
    for (std::size_t i = 0; i < outcome.held.size(); ++i) {
      fmt::format_to(std::back_inserter(csv), "{},{},{},{:.6f},{:.3f}\n",
                     sim::appetite_name(outcome.appetite), outcome.contender.name(), i + 1,
                     outcome.rates[i], outcome.held[i]);
    }
  }
  return csv;
}

std::string lock_report_html(const LockStudy& study) {
  Json json = study_json(study);
  for (std::size_t i = 0; i < study.outcomes.size(); ++i) {
    Json granted = Json::array();
    Json volume = Json::array();
    for (const sim::LockSample& sample : study.outcomes[i].samples) {
      granted.push_back(sample.granted);
      volume.push_back(sample.volume);
    }
    json["runs"][i]["granted"] = std::move(granted);
    json["runs"][i]["volume"] = std::move(volume);
    // Hundreds of clients form one curve: two hundred points are enough.
    Json held = Json::array();
    const std::vector<double>& all = study.outcomes[i].held;
    const std::size_t step = std::max<std::size_t>(1, all.size() / 200);
    for (std::size_t client = 0; client < all.size(); client += step) {
      held.push_back({rounded(study.outcomes[i].rates[client]), rounded(all[client])});
    }
    json["runs"][i]["held"] = std::move(held);
  }
  return report_page(kPage, text_of(json, -1));
}

Result<void> write_lock_study(const LockStudy& study, const std::string& folder) {
  const NamedText files[] = {
      {"result.json", lock_result_json(study)},
      {"locks.csv", locks_csv(study)},
      {"clients.csv", lock_clients_csv(study)},
      {"report.html", lock_report_html(study)},
  };
  return write_texts(folder, files);
}

}  // namespace weir::study
