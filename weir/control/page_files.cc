// SPDX-License-Identifier: Apache-2.0
#include "weir/control/page_files.h"

#include <string>

#include "weir/control/embedded.h"
#include "weir/control/problem.h"

namespace weir::control {
namespace {

struct PageFile {
  std::string_view path;
  std::string_view file;
  std::string_view type;
};
constexpr std::string_view kScript = "text/javascript";
constexpr PageFile kPage[] = {
    {"/", "live.html", "text/html; charset=utf-8"}, {"/live.js", "live.js", kScript},
    {"/live-charts.js", "live-charts.js", kScript}, {"/live-edit.js", "live-edit.js", kScript},
    {"/live-views.js", "live-views.js", kScript},   {"/live.css", "live.css", "text/css"},
    {"/uplot.js", "uPlot.iife.min.js", kScript},    {"/uplot.css", "uPlot.min.css", "text/css"}};

}  // namespace

std::optional<HttpResponse> page_file(const HttpRequest& request) {
  for (const PageFile& file : kPage) {
    if (request.path != file.path) continue;
    if (request.method != "GET" && request.method != "HEAD") {
      return method_response(request.method, "GET, HEAD");
    }
    const auto text = find_embedded(embedded_files(), file.file);
    return text ? HttpResponse{.body = std::string(*text), .type = std::string(file.type)}
                : error_response(404, "this build does not include the page");
  }
  return std::nullopt;
}

}  // namespace weir::control
