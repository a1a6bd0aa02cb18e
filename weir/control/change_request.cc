// SPDX-License-Identifier: Apache-2.0
#include "weir/control/change_request.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "weir/base/quote.h"
#include "weir/classify/plain_rates.h"
#include "weir/control/api_path.h"
#include "weir/control/json_nlohmann.h"
#include "weir/control/lock_params.h"
#include "weir/control/params.h"
#include "weir/schedule/policy_kinds.h"

namespace weir::control {
namespace {

// An object with these keys and no others.
class Body {  // NOLINT(bugprone-exception-escape): of Json, which asserts when it is moved
 public:
  static Result<Body> read(const std::string& text, std::initializer_list<const char*> keys) {
    Body body;
    body.json_ = Json::parse(text, nullptr, false);
    if (!body.json_.is_object()) {
      return fail(std::errc::invalid_argument, "body", "is not a JSON object");
    }
    for (const auto& item : body.json_.items()) {
      const auto known = [&](const char* one) { return item.key() == one; };
      if (std::none_of(keys.begin(), keys.end(), known)) {
        return fail(std::errc::invalid_argument, quote(item.key()), "is not a valid key here");
      }
    }
    return body;
  }

  Result<std::string> text(const char* key) const {
    if (!json_.contains(key) || !json_[key].is_string()) {
      return fail(std::errc::invalid_argument, quote(key), "is missing or not a string");
    }
    return json_[key].get<std::string>();
  }
  Result<std::uint64_t> number(const char* key) const {
    if (!json_.contains(key) || !json_[key].is_number_unsigned()) {
      return fail(std::errc::invalid_argument, quote(key), "is missing or not a whole number");
    }
    return json_[key].get<std::uint64_t>();
  }
  Result<bool> flag(const char* key) const {
    if (!json_.contains(key)) return false;
    if (!json_[key].is_boolean()) {
      return fail(std::errc::invalid_argument, quote(key), "must be true or false");
    }
    return json_[key].get<bool>();
  }
  const Json& json() const { return json_; }

 private:
  Json json_;
};

tl::unexpected<Error> no_such_method(const HttpRequest& request) {
  return fail(std::errc::not_supported, quote(request.path),
              quote(request.method) + " is not allowed here");
}

Result<ChangeRequest> read_params_change(const HttpRequest& request) {
  const auto body = Body::read(request.body, {"set", "persist", "delete"});
  if (!body) return tl::unexpected(body.error());
  const auto persist = body->flag("persist");
  const auto forget = body->flag("delete");
  if (!persist) return tl::unexpected(persist.error());
  if (!forget) return tl::unexpected(forget.error());
  ChangeRequest change{.changes = {}, .persists = *persist, .applies = !*forget, .is_params = true};
  if (!body->json().contains("set") || !body->json()["set"].is_array()) {
    return fail(std::errc::invalid_argument, "'set'", "is missing or not an array");
  }
  for (const Json& one : body->json()["set"]) {
    const auto is_text = [&](const char* key) { return one.contains(key) && one[key].is_string(); };
    if (!one.is_object() || !is_text("pattern") || (!*forget && !is_text("value"))) {
      return fail(std::errc::invalid_argument, "'set'", "contains more than pattern and value");
    }
    std::optional<std::string> value;
    if (is_text("value")) value = one["value"].get<std::string>();
    change.changes.push_back(param_change(*forget ? Change::Kind::kForget : Change::Kind::kParam,
                                          dotted(one["pattern"].get<std::string>()),
                                          std::move(value)));
  }
  return change;
}

// Empty if it is not given.
Result<std::string> read_generation(const Body& body) {
  return body.json().contains("generation") ? body.text("generation") : std::string();
}

Result<ChangeRequest> read_job_change(const HttpRequest& request, const std::string& name) {
  auto id = read_id(name);
  if (!id) return tl::unexpected(id.error());
  if (id->size() > JobId::kSizeMax) {
    return fail(std::errc::invalid_argument, "job " + quote(name), "is longer than 31 bytes");
  }
  Change change{.kind = Change::Kind::kJob, .target = std::move(*id), .value = {}};
  std::string expected;
  if (request.method == "PUT") {
    const auto body = Body::read(request.body, {"nodes", "generation"});
    if (!body) return tl::unexpected(body.error());
    const auto nodes = body->number("nodes");
    if (!nodes) return tl::unexpected(nodes.error());
    if (*nodes == 0) return fail(std::errc::invalid_argument, "'nodes'", "must be above 0");
    change.nodes = *nodes;
    auto generation = read_generation(*body);
    if (!generation) return tl::unexpected(generation.error());
    expected = std::move(*generation);
  } else if (request.method != "DELETE") {
    return no_such_method(request);
  }
  return ChangeRequest{.changes = {std::move(change)}, .generation = std::move(expected)};
}

// Without a head, on both.
Result<Change> read_tunable(const HttpRequest& request, const std::string& service) {
  const auto body = Body::read(request.body, {"policy", "tunable", "value", "head"});
  if (!body) return tl::unexpected(body.error());
  const auto policy = body->text("policy");
  if (!policy) return tl::unexpected(policy.error());
  const auto tunable = body->text("tunable");
  if (!tunable) return tl::unexpected(tunable.error());
  const auto value = body->number("value");
  if (!value) return tl::unexpected(value.error());
  const auto kind = find_policy(*policy);
  if (!kind) return tl::unexpected(kind.error());
  if (auto known = find_tunable(**kind, *tunable); !known) return tl::unexpected(known.error());
  std::string label;
  if (body->json().contains("head")) {
    const auto head = body->text("head");
    if (!head) return tl::unexpected(head.error());
    if (*head != "regular" && *head != "high_priority") {
      return fail(std::errc::invalid_argument, "'head'", "must be regular or high_priority");
    }
    label = (*head == "regular" ? "reg_" : "hp_") + *tunable + ":";
  }
  return Change{.target = tunable_path(service, *policy, *tunable),
                .value = label + std::to_string(*value)};
}

Result<ChangeRequest> read_rule_command(const HttpRequest& request, const std::string& service) {
  const auto body = Body::read(request.body, {"command", "dry_run", "generation"});
  if (!body) return tl::unexpected(body.error());
  const auto command = body->text("command");
  if (!command) return tl::unexpected(command.error());
  const auto dry_run = body->flag("dry_run");
  if (!dry_run) return tl::unexpected(dry_run.error());
  ChangeRequest change{.changes = {param_change(Change::Kind::kParam, rule_path(service),
                                                with_plain_rates(*command))},
                       .is_dry_run = *dry_run};
  auto generation = read_generation(*body);
  if (!generation) return tl::unexpected(generation.error());
  change.generation = std::move(*generation);
  return change;
}

Result<ChangeRequest> read_service_change(const HttpRequest& request,
                                          const std::vector<std::string>& parts) {
  const std::string& service = parts[1];
  const auto one_text = [&](const char* key) -> Result<std::string> {
    const auto body = Body::read(request.body, {key});
    if (!body) return tl::unexpected(body.error());
    return body->text(key);
  };
  if (parts[2] == "rules" && parts.size() == 3 && request.method == "POST") {
    return read_rule_command(request, service);
  }
  Change change;
  if (parts[2] == "rules" && parts.size() == 4 && request.method == "DELETE") {
    change = rule_change(service, stop_of(parts[3]));
  } else if (parts.size() != 3) {
    return fail(std::errc::no_such_file_or_directory, quote(request.path), "no such path");
  } else if (parts[2] == "policies" && request.method == "PUT") {
    auto policy = one_text("policy");
    if (!policy) return tl::unexpected(policy.error());
    change = {.target = policy_path(service), .value = std::move(*policy)};
  } else if (parts[2] == "tunables" && request.method == "PUT") {
    auto tunable = read_tunable(request, service);
    if (!tunable) return tl::unexpected(tunable.error());
    change = std::move(*tunable);
  } else if (parts[2] == "capacity" && request.method == "PUT") {
    auto capacity = one_text("capacity");
    if (!capacity) return tl::unexpected(capacity.error());
    change = {.kind = Change::Kind::kCapacity, .target = service, .value = std::move(*capacity)};
  } else {
    return no_such_method(request);
  }
  return ChangeRequest{.changes = {std::move(change)}};
}

// Each key is one parameter, so that it is parsed, stored and refused like parameters.
Result<ChangeRequest> read_locks_change(const HttpRequest& request, const std::string& name) {
  const auto body = Body::read(request.body, {"limit", "recalc_period", "lru_size", "lru_max_age"});
  if (!body) return tl::unexpected(body.error());
  ChangeRequest change;
  for (const auto& item : body->json().items()) {
    const bool is_count = item.key() == "limit" || item.key() == "lru_size";
    Change made;
    if (is_count) {
      const auto number = body->number(item.key().c_str());
      if (!number) return tl::unexpected(number.error());
      made.value = std::to_string(*number);
    } else {
      auto text = body->text(item.key().c_str());
      if (!text) return tl::unexpected(text.error());
      made.value = std::move(*text);
    }
    const bool is_pool = item.key() == "limit" || item.key() == "recalc_period";
    made.target =
        is_pool ? lock_pool_path(name, item.key()) : lock_namespace_path(name, item.key());
    change.changes.push_back(std::move(made));
  }
  if (change.changes.empty()) {
    return fail(std::errc::invalid_argument, "body", "changes nothing",
                "set limit, recalc_period, lru_size or lru_max_age");
  }
  return change;
}

}  // namespace

Result<ClusterChange> read_cluster_change(const HttpRequest& request) {
  const auto body = Body::read(request.body, {"service", "command"});
  if (!body) return tl::unexpected(body.error());
  auto service = body->text("service");
  if (!service) return tl::unexpected(service.error());
  const auto command = body->text("command");
  if (!command) return tl::unexpected(command.error());
  auto change = parse_rule(with_plain_rates(*command));
  if (!change) return tl::unexpected(change.error());
  return ClusterChange{std::move(*service), std::move(*change)};
}

Result<ChangeRequest> read_change(const HttpRequest& request) {
  const auto parts = api_parts(request.path);
  if (parts.size() == 1 && parts[0] == "params" && request.method == "POST") {
    return read_params_change(request);
  }
  if (parts.size() == 2 && parts[0] == "jobs") return read_job_change(request, parts[1]);
  if (parts.size() >= 3 && parts[0] == "services") return read_service_change(request, parts);
  if (parts.size() == 2 && parts[0] == "locks" && request.method == "PUT") {
    return read_locks_change(request, parts[1]);
  }
  if (is_lock_list_path(request.path)) return no_such_method(request);
  if (is_snapshot_path(request.path) || (parts.size() == 1 && parts[0] == "params")) {
    return no_such_method(request);
  }
  return fail(std::errc::no_such_file_or_directory, quote(request.path), "no such path",
              "see weir-api(7)");
}

}  // namespace weir::control
