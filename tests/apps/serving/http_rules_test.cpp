#include "serving/http/http_rules.hpp"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "serving/http/page_files.hpp"
#include "serving/requests/metrics.hpp"
#include "test.hpp"

namespace heddle {
namespace {

namespace http = boost::beast::http;

/// The status with which the header of a request is refused, 200 for one that is not, or 0 for what is not HTTP.
int status_of(std::string const& header, Access const& access = Access({})) {
  http::request_parser<http::string_body> parser;
  boost::beast::error_code problem;
  std::string const text = header + "\r\n";
  parser.put(boost::asio::buffer(text), problem);
  if (problem && problem != http::error::need_more) {
    return 0;
  }
  try {
    require_allowed(parser.get(), access);
    return 200;
  } catch (HttpError const& error) {
    return error.status;
  }
}

std::string const post = "POST /v1/translate HTTP/1.1\r\nHost: localhost:8080\r\nContent-Type: application/json\r\n";
std::string const host = "Host: localhost\r\n";

TEST(HttpRulesTest, AnswersOnlyTheServersOwnPaths) {
  EXPECT_EQ(status_of(post), 200);
  for (PageFile const& file : page_files()) {
    EXPECT_EQ(status_of(fmt::format("GET {} HTTP/1.1\r\n{}", file.path, host)), 200) << file.path;
  }
  EXPECT_EQ(status_of("HEAD /health?x=1 HTTP/1.1\r\n" + host), 200);
  EXPECT_EQ(status_of("GET /health HTTP/1.0\r\n"), 200);
  for (char const* const path : {"/../etc/passwd", "/page.js/", "//page.js", "/%70age.js", "/page.js%00", "/v1/models/",
                                 "/V1/MODELS", "/v1/translate/..", "http://localhost/health", "*"}) {
    EXPECT_EQ(status_of(fmt::format("GET {} HTTP/1.1\r\n{}", path, host)), 404) << path;
  }
  EXPECT_EQ(status_of("GET /v1/translate HTTP/1.1\r\n" + host), 405);
  EXPECT_EQ(status_of("POST /health HTTP/1.1\r\n" + host), 405);
  EXPECT_EQ(status_of("OPTIONS /v1/translate HTTP/1.1\r\n" + host), 405);
  expect_contains(answer_of(HttpError(405, "expected POST", "POST")).fields, "Allow: POST\r\n");
  EXPECT_EQ(status_of(post + "Content-Encoding: gzip\r\n"), 415);
}

TEST(HttpRulesTest, RefusesUncertainLengths) {
  EXPECT_EQ(status_of(post + "Transfer-Encoding: chunked\r\n"), 200);
  EXPECT_EQ(status_of(post + "Content-Length: 3\r\n"), 200);
  EXPECT_EQ(status_of(post + "Content-Length: 3\r\nContent-Length: 3\r\n"), 400);
  for (char const* const list : {"3, 3", "3,3", "3 ,3", "3, 3, 3"}) {
    EXPECT_EQ(status_of(post + "Content-Length: " + list + "\r\n"), 400) << list;
  }
  EXPECT_EQ(status_of(post + "Transfer-Encoding: gzip\r\n"), 501);
  EXPECT_EQ(status_of(post + "Transfer-Encoding: xchunked\r\n"), 501);
  EXPECT_EQ(status_of(post + "Transfer-Encoding: gzip, chunked\r\n"), 501);
  // Boost.Beast's parser refuses these itself.
  for (char const* const fields :
       {"Content-Length: 3\r\nContent-Length: 4\r\n", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Content-Length: -1\r\n",
        "Content-Length: +1\r\n", "Content-Length: 0x10\r\n", "Content-Length : 3\r\n",
        "Content-Length: 99999999999999999999\r\n"}) {
    EXPECT_THAT(status_of(post + fields), AnyOf(0, 400)) << fields;
  }
}

TEST(HttpRulesTest, TakesJsonForThisHostOnly) {
  std::string const line = "POST /v1/translate HTTP/1.1\r\n";
  EXPECT_EQ(status_of(line + host), 415);
  EXPECT_EQ(status_of(line + host + "Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(status_of(line + host + "Content-Type: Application/JSON; charset=utf-8\r\n"), 200);
  EXPECT_EQ(status_of(line + "Content-Type: application/json\r\n"), 400);
  EXPECT_EQ(status_of(post + host), 400);
  EXPECT_EQ(status_of("GET /health HTTP/1.1\r\nHost: rebound.example\r\n"), 421);
  EXPECT_EQ(status_of("GET /health HTTP/1.1\r\nHost: localhost.example\r\n"), 421);
  EXPECT_EQ(status_of("GET /health HTTP/1.1\r\nHost: [::1]:80\r\n"), 200);
  EXPECT_EQ(status_of("GET /health HTTP/1.1\r\nHost: rebound.example\r\n", Access({.open = true})), 200);
}

std::string message_of(Access::Options const& options) {
  try {
    Access const access(options);
    return "";
  } catch (UsageError const& error) {
    return error.what();
  }
}

TEST(HttpRulesTest, NeedTheTokenWhereThereIsOne) {
  TemporaryDirectory const directory;
  std::string const file = (directory.path() / "token").string();
  std::ofstream(file) << "0123456789abcdef\n";
  expect_contains(message_of({.address = "0.0.0.0"}), "--token-file");
  expect_contains(message_of({.address = "::"}), "--token-file");
  EXPECT_EQ(message_of({.address = "0.0.0.0", .open = true}), "");
  EXPECT_EQ(message_of({.address = "::1"}), "");
  expect_contains(message_of({.address = "localhost"}), "expected an address");
  expect_contains(message_of({.token_file = file, .open = true}), "exclude");
  expect_contains(message_of({.token_file = file + "x"}), "--token-file");
  Access const access({.address = "0.0.0.0", .token_file = file});
  EXPECT_EQ(status_of(post + "Authorization: Bearer 0123456789abcdef\r\n", access), 200);
  EXPECT_EQ(status_of(post + "Authorization: bearer 0123456789abcdef\r\n", access), 200);
  for (char const* const given : {"", "Bearer", "Bearer ", "Bearer 0123456789abcdeF", "Bearer 0123456789abcdef0",
                                  "Bearer 0123456789abcde", "Basic 0123456789abcdef", "0123456789abcdef"}) {
    EXPECT_EQ(status_of(fmt::format("{}Authorization: {}\r\n", post, given), access), 401) << given;
  }
  EXPECT_EQ(status_of(post, access), 401);
  EXPECT_EQ(status_of("GET /metrics HTTP/1.1\r\n" + host, access), 401);
  EXPECT_EQ(status_of("GET /health HTTP/1.1\r\n" + host, access), 200);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n" + host, access), 200);
  for (auto const& [rights, warned] : {std::pair(0600U, false), {0640U, false}, {0604U, true}, {0644U, true}}) {
    std::filesystem::permissions(file, std::filesystem::perms(rights));
    ::testing::internal::CaptureStderr();
    message_of({.token_file = file});
    std::string const printed = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(printed.find("every user of this machine can read it") != printed.npos, warned) << rights << printed;
  }
  std::ofstream(file) << "short\n";
  expect_contains(message_of({.token_file = file}), "at least 16");
  std::ofstream(file) << "two lines of text\nand more\n";
  expect_contains(message_of({.token_file = file}), "one line");
}

TEST(HttpAnswerTest, HasFieldsThatKeepOtherSitesOut) {
  std::string const header = header_of({.body = "{}"}, AfterAnswer::keep);
  expect_contains(header, {"HTTP/1.1 200 OK\r\n", "Content-Length: 2\r\n", "frame-ancestors 'none'",
                           "X-Content-Type-Options: nosniff\r\n"});
  expect_lacks(header_of({}, AfterAnswer::close, false), "Content-Length");
  expect_contains(header_of(answer_of({429, "full"}), AfterAnswer::keep), "Retry-After: 1\r\n");
  EXPECT_EQ(answer_of({400, "a \"b\""}).body, "{\"error\":\"a \\\"b\\\"\"}\n");
}

TEST(ServingMetricsTest, ArePrometheusText) {
  ServingMetrics metrics;
  metrics.count_answer("/v1/translate", 200, std::chrono::milliseconds(30));
  metrics.count_answer("/v1/translate", 429, std::chrono::milliseconds(1));
  metrics.count_answer("other", 404, std::chrono::seconds(1));
  metrics.finished_texts = 5;
  std::string const text = metrics.text({.connections = 2, .waiting_texts = 3});
  expect_contains(
      text, {"\nheddle_http_answers_total{path=\"/v1/translate\",status=\"429\"} 1\n",
             "\nheddle_translate_seconds_bucket{le=\"0.025\"} 0\n",
             "\nheddle_translate_seconds_bucket{le=\"0.05\"} 1\n", "\nheddle_translate_seconds_bucket{le=\"+Inf\"} 1\n",
             "\nheddle_texts_total 5\n", "\n# TYPE heddle_texts_waiting gauge\nheddle_texts_waiting 3\n"});
}

}  // namespace
}  // namespace heddle
