#include "corpus/chunks.hpp"

#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "corpus/forked_workers.hpp"
#include "test.hpp"

namespace heddle {
namespace {

TEST(Chunks, TravelBetweenProcesses) {
  Chunk const chunk{7, {{"a\nb", 3, {"", "x y"}, "law", "pre"}, {"", 4, {}, ""}}};
  Chunk const same = chunk_of(to_bytes(chunk));
  EXPECT_EQ(same.number, 7);
  ASSERT_EQ(same.lines.size(), 2U);
  EXPECT_EQ(same.lines[0].text, "a\nb");
  EXPECT_EQ(same.lines[0].number, 3);
  EXPECT_EQ(same.lines[0].references, (std::vector<std::string>{"", "x y"}));
  EXPECT_EQ(same.lines[0].adapter, "law");
  EXPECT_EQ(same.lines[0].prefix, "pre");

  ChunkResult const result{2, "text", {"one", "two"}, {0.1, -3}, 5, 6};
  ChunkResult const back = result_of(to_bytes(result));
  EXPECT_EQ(back.number, 2);
  EXPECT_EQ(back.text, "text");
  EXPECT_EQ(back.messages, result.messages);
  EXPECT_EQ(back.sums, result.sums);
  EXPECT_EQ(back.lines, 5);
  EXPECT_EQ(back.tokens, 6);
}

TEST(Chunks, DamagedBytesAreRefused) {
  std::string const bytes = to_bytes(Chunk{7, {{"text", 3}}});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(chunk_of(bytes.substr(0, length)), Error) << length;
  }
  EXPECT_THROW(chunk_of(bytes + "x"), Error);
  EXPECT_THROW(chunk_of(std::string(40, '\xFF')), Error);
}

/// Takes longer for early chunks, so that results come in another order.
ChunkResult slow(Chunk const& chunk, std::function<void()> const& pause) {
  pause();
  ::usleep(chunk.number % 3 == 0 ? 3000 : 0);
  ChunkResult result{.number = chunk.number, .lines = std::ssize(chunk.lines)};
  for (SourceLine const& line : chunk.lines) {
    if (line.text == "fail") {
      throw DataError("line 2 is bad");
    }
    if (line.text == "die") {
      ::raise(SIGKILL);
    }
    result.text += line.text + "!\n";
    result.sums = {static_cast<double>(line.number)};
  }
  return result;
}

/// The text that workers make of chunks with these lines, one each.
std::string converted(ChunkWorkers& workers, std::vector<std::string> const& lines) {
  std::size_t read = 0;
  std::string text;
  process_chunks(
      [&]() -> std::optional<Chunk> {
        if (read == lines.size()) {
          return std::nullopt;
        }
        auto const number = static_cast<std::int64_t>(read);
        return Chunk{0, {{lines[read++], number + 1}}};
      },
      workers, [&](ChunkResult const& result) { text += result.text; });
  return text;
}

TEST(Chunks, ResultsComeInOrderFromAnyNumberOfProcesses) {
  std::vector<std::string> lines;
  std::string expected;
  for (int number = 0; number < 40; ++number) {
    lines.push_back(std::to_string(number) + std::string(static_cast<std::size_t>(number) * 5000, 'x'));
    expected += lines.back() + "!\n";
  }
  OwnWorker own(slow);
  EXPECT_EQ(converted(own, lines), expected);
  for (int const count : {1, 3, 50}) {
    ForkedWorkers workers(count, slow);
    EXPECT_EQ(converted(workers, lines), expected) << count;
  }
  ForkedWorkers none(2, slow);
  EXPECT_EQ(converted(none, {}), "");
}

TEST(Chunks, AProcessThatFailsIsReported) {
  ForkedWorkers failing(2, slow);
  try {
    converted(failing, {"a", "fail", "b"});
    FAIL() << "expected an error";
  } catch (Error const& error) {
    EXPECT_STREQ(error.what(), "line 2 is bad");
    EXPECT_EQ(error.code(), ExitCode::bad_data);
  }
  ForkedWorkers killed(2, slow);
  expect_error([&] { converted(killed, {"a", "die", "b", "c"}); }, "was killed by signal 9");
}

TEST(Chunks, ProcessesThatAreStoppedEnd) {
  auto const began = std::chrono::steady_clock::now();
  {
    ForkedWorkers idle(2, slow);
    EXPECT_EQ(converted(idle, {"a", "b", "c"}), "a!\nb!\nc!\n");
    int stopped = 0;
    std::ifstream children(fmt::format("/proc/self/task/{}/children", ::getpid()));
    for (pid_t child = 0; children >> child; ++stopped) {
      ::kill(child, SIGSTOP);
    }
    EXPECT_EQ(stopped, 2);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
}

}  // namespace
}  // namespace heddle
