// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "weir/control/http_control.h"
#include "weir/control/records.h"
#include "weir/control/snapshot_json.h"
#include "weir/serve/event_log.h"

namespace weir::control {
namespace {

using Clock = std::chrono::steady_clock;
// Classes sampled for the history in a second; with more of them, samples are rarer.
constexpr std::size_t kUsageClasses = 16'384;

WaitHistory::OfService waits_of(const Target& target, Instant now) {
  WaitHistory::OfService waits{now};
  if (const RuleView* const rules = target.rules(Head::kRegular)) {
    rules->visit_waits(now, [&](const WaitView& wait) {
      waits.waits.push_back(wait);
      waits.devices.push_back(device_of(target.stats().find(wait.key.job)));
    });
  }
  return waits;
}

}  // namespace

// ---- snapshots ----

// A reader sees its own earlier changes: a snapshot that was started before them is not used.
void HttpControl::with_snapshot(WithSnapshot then) {
  const std::uint64_t changes = shown_changes_;
  const bool is_new = shot_ && shot_changes_ == changes && Clock::now() - shot_at_ <= kSnapshotAge;
  if (is_new) return then(&*shot_);
  wanting_.emplace_back(changes, std::move(then));
  if (!is_taking_) take_snapshot();
}

void HttpControl::take_snapshot() {
  is_taking_ = true;
  const std::uint64_t changes = shown_changes_;
  take(std::make_shared<SnapshotTaker>(), [this, changes](Result<Snapshot> shot) {
    if (!shot) return hand_out(tl::unexpected(shot.error()), UINT64_MAX);
    shot_ = std::move(*shot);
    if (locks_ != nullptr) shot_->locks = locks_->view();
    shot_->memory_history = usage_.memory();
    shot_at_ = Clock::now();
    has_rates_ = false;
    if (shot_at_ < classes_read_at_ + ClassRates::kWindowMax) add_rates();
    shot_changes_ = changes;
    hand_out(&*shot_, changes);
  });
}

void HttpControl::add_rates() {
  if (!shot_ || std::exchange(has_rates_, true)) return;
  rates_.update(*shot_, usage_);
}

// Takes the snapshot in steps, each a separate command, so that requests run between them.
void HttpControl::take(const std::shared_ptr<SnapshotTaker>& taker, Taken then) {
  ask<std::pair<bool, std::uint64_t>>(
      [this, taker](serve::Server& server) -> Result<std::pair<bool, std::uint64_t>> {
        return std::pair{taker->step(server), changes_.generation()};
      },
      [this, taker, then = std::move(then)](const Result<std::pair<bool, std::uint64_t>>& step) {
        if (!step) return then(tl::unexpected(step.error()));
        generation_ = std::max(generation_, step->second);
        if (!step->first) return take(taker, then);
        if (lock_target_ != nullptr) taker->add(*lock_target_);
        then(taker->finish());
      });
}

// Passes the snapshot to readers that need at most these changes; the others get the next one.
void HttpControl::hand_out(const Result<const Snapshot*>& shot, std::uint64_t changes) {
  is_taking_ = false;
  for (auto& [wanted, then] : std::exchange(wanting_, {})) {
    if (wanted <= changes) {
      then(shot);
    } else {
      wanting_.emplace_back(wanted, std::move(then));
    }
  }
  if (!wanting_.empty() && !is_taking_) take_snapshot();
}

void HttpControl::publish_event() {
  if (http_->streams() == 0) return;
  with_snapshot([this](const Result<const Snapshot*>& shot) {
    if (shot) http_->publish(live_event(**shot, generation_name()));
  });
}

void HttpControl::sample_waits() {
  using Sample = WaitHistory::Sample;
  ask<Sample>(
      [](serve::Server& server) -> Result<Sample> {
        Sample sample;
        for (const auto& service : server.services()) {
          sample.push_back(waits_of(service->target, server.now()));
        }
        return sample;
      },
      [this](Result<Sample> sample) {
        if (!sample) return;
        if (lock_target_ != nullptr) {
          lock_target_->look(
              [&](const Target& target, Instant now) { sample->push_back(waits_of(target, now)); });
        }
        history_.add(*std::move(sample));
      });
}

void HttpControl::sample_usage() {
  if (is_sampling_) return;
  if (usage_skips_ > 0) {
    --usage_skips_;
    return;
  }
  is_sampling_ = true;
  usage_.begin(host::now());
  step_usage(std::make_shared<UsageSampler>());
}

void HttpControl::step_usage(const std::shared_ptr<UsageSampler>& sampler) {
  ask<bool>([sampler](serve::Server& server) -> Result<bool> { return sampler->step(server); },
            [this, sampler](const Result<bool>& is_whole) {
              if (!is_whole) return;  // the server is shutting down
              sampler->hand_over(usage_);
              if (!*is_whole) return step_usage(sampler);
              if (lock_target_ != nullptr) sampler->add(*lock_target_, usage_);
              usage_skips_ = sampler->classes() / kUsageClasses;
              is_sampling_ = false;
            });
}

void HttpControl::checkpoint() {
  ask<Records>([](serve::Server& server) -> Result<Records> { return records_of(server); },
               [this](const Result<Records>& records) {
                 if (!records) return;
                 std::string text = print_records(*records);
                 if (text == records_text_) return;
                 if (auto written = replace_file(records_path_, text); !written) {
                   return serve::EventLog::say(written.error().message());
                 }
                 records_text_ = std::move(text);
               });
}

}  // namespace weir::control
