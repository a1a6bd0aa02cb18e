// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>

#include "weir/base/quote.h"
#include "weir/control/explain.h"
#include "weir/control/http_control.h"
#include "weir/control/problem.h"

namespace weir::control {

void HttpControl::explain(const HttpRequest& request, const Reply& reply) {
  const std::string name(request.find("name").value_or(""));
  const std::string service(request.find("service").value_or(""));
  if (!name.starts_with(kExport)) return explain_class({name, service}, reply);
  explain_export(name.substr(kExport.size()), service, reply);
}

// Explains the job that waits most of those that the export has served.
void HttpControl::explain_export(const std::string& name, const std::string& service,
                                 const Reply& reply) {
  ask<Question>(
      [name, service](serve::Server& server) -> Result<Question> {
        for (const auto& served : server.exports()) {
          if (served->options.name != name) continue;
          if (!service.empty() && served->service->name != service) break;
          return question_of_export(*served, server.now());
        }
        return Question{std::string(kExport) + name, service};  // a class may be named so
      },
      [this, reply](const Result<Question>& question) {
        if (!question) return reply(error_response(question.error()));
        explain_class(*question, reply);
      });
}

// Explains a job of a client, user or group without a class of its own.
void HttpControl::explain_client(const Question& question, const Error& unknown,
                                 const Reply& reply) {
  const std::optional<ClientOrUser> asked = read_client_or_user(question.name);
  if (!asked) return reply(error_response(unknown));
  ask<std::optional<Question>>(
      [question, asked](serve::Server& server) -> Result<std::optional<Question>> {
        return question_of_client(server, *asked, question.name, question.service);
      },
      [this, question, unknown, reply](const Result<std::optional<Question>>& job) {
        if (!job) return reply(error_response(job.error()));
        if (*job) return explain_class(**job, reply);
        // The job of a user who claims none.
        constexpr std::string_view kUid = "uid=";
        if (!question.name.starts_with(kUid)) return reply(error_response(unknown));
        explain_class({"job=uid." + question.name.substr(kUid.size()), question.service}, reply);
      });
}

void HttpControl::explain_class(const Question& question, const Reply& reply) {
  const auto taker = std::make_shared<SnapshotTaker>(ClassQuery(question.name));
  take(taker, [this, question, reply](Result<Snapshot> taken) {
    if (!taken) return reply(error_response(taken.error()));
    const auto shot = std::make_shared<Snapshot>(std::move(*taken));
    const auto& [name, service, asked_for] = question;
    const auto is_it = [&](const ServiceSnapshot& one) { return one.name == question.service; };
    if (!service.empty() && std::none_of(shot->services.begin(), shot->services.end(), is_it)) {
      return reply(error_response(404, "no service named " + quote(service)));
    }
    const auto found = find_class(*shot, service, name);
    if (!found && name.starts_with(kExport)) {
      return reply(error_response(no_export(name.substr(kExport.size()), service)));
    }
    if (!found) return explain_client(question, not_explained(*shot, service, name), reply);
    const std::string in = shot->services[found->service].name;
    const auto then = [this, shot, question, reply](const Result<std::string>& reason) {
      answer_question(question, *shot, reason.value_or(""), reply);
    };
    if (lock_target_ != nullptr && in == lock_target_->service()) {
      std::string reason;
      if (locks_ != nullptr) shot->locks = locks_->view();
      lock_target_->look(
          [&](const Target& target, Instant) { reason = reason_of(target, found->key); });
      return then(reason);
    }
    ask<std::string>(
        [key = found->key, in](serve::Server& server) -> Result<std::string> {
          const serve::Service* const there = server.find_service(in);
          return there == nullptr ? "" : reason_of(there->target, key);
        },
        then);
  });
}

// `reason` is the name of the rule in layer 0, a tab and why it matches.
void HttpControl::answer_question(const Question& question, const Snapshot& shot,
                                  const std::string& reason, const Reply& reply) const {
  const std::size_t tab = std::min(reason.find('\t'), reason.size());
  auto under = find_class(shot, question.service, question.name, reason.substr(0, tab));
  if (!under || under->found == nullptr) {
    return reply(error_response(not_explained(shot, question.service, question.name)));
  }
  under->asked_for = question.asked_for;
  // A class of another layer is described by its rule.
  const bool is_its_rule = reason.substr(0, tab) == under->found->rule;
  reply({.body = explain_json(shot, *under, history_,
                              is_its_rule ? reason.substr(std::min(tab + 1, reason.size())) : "")});
}

}  // namespace weir::control
