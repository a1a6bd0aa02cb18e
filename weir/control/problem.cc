// SPDX-License-Identifier: Apache-2.0
#include "weir/control/problem.h"

#include <string>
#include <utility>

#include "weir/base/quote.h"
#include "weir/control/json_nlohmann.h"

namespace weir::control {
namespace {

constexpr const char* kType = "application/problem+json";

unsigned status_of(std::errc code) {
  switch (code) {
    case std::errc::no_such_file_or_directory:
      return 404;
    case std::errc::file_exists:
    case std::errc::no_such_device:
    case std::errc::device_or_resource_busy:
      return 409;
    case std::errc::operation_not_permitted:
    case std::errc::permission_denied:
      return 403;
    case std::errc::not_supported:
      return 405;
    case std::errc::no_space_on_device:
      return 507;
    case std::errc::operation_canceled:
    case std::errc::resource_unavailable_try_again:
      return 503;
    case std::errc::io_error:
      return 500;
    default:
      return 400;
  }
}

// The reason phrase of RFC 9110 for the statuses that the API uses.
std::string_view title_of(unsigned status) {
  static constexpr std::pair<unsigned, std::string_view> kTitles[] = {
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {412, "Precondition Failed"},
      {413, "Content Too Large"},
      {421, "Misdirected Request"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {503, "Service Unavailable"},
      {507, "Insufficient Storage"}};
  for (const auto& [code, title] : kTitles) {
    if (code == status) return title;
  }
  return "Error";
}

Json problem_json(unsigned status, std::string_view detail) {
  return {
      {"type", "about:blank"}, {"title", title_of(status)}, {"status", status}, {"detail", detail}};
}

}  // namespace

HttpResponse error_response(unsigned status, std::string_view what, std::string_view hint) {
  Json json = problem_json(status, what);
  if (!hint.empty()) json["hint"] = hint;
  return {.status = status, .body = text_of(json), .type = kType};
}

HttpResponse error_response(const Error& error) {
  const unsigned status = status_of(error.code);
  Json json = problem_json(status, error.what);
  json["where"] = error.where;
  json["hint"] = error.hint;
  json["errno"] = static_cast<int>(error.code);
  return {.status = status, .body = text_of(json), .type = kType};
}

HttpResponse method_response(std::string_view method, std::string_view allowed) {
  HttpResponse response =
      error_response(405, quote(method) + " is not allowed here", "use " + std::string(allowed));
  response.allow = allowed;
  return response;
}

}  // namespace weir::control
