#include "corpus/corpus_output.hpp"

#include <sys/stat.h>

#include <heddle/io/text/text.hpp>

#include "test.hpp"

namespace heddle {
namespace {

class CorpusOutputTest : public testing::Test {
 protected:
  /// A command that ends after it has written `chunks` of the eight of a text. Returns how many it computed.
  int run(int chunks, std::string const& identity = "same", std::string const& first = "0") {
    CorpusOutput output(path_, identity, {});
    int read = 0;
    int computed = 0;
    auto const source = [&]() -> std::optional<Chunk> {
      int const number = read++;
      return number == 8 ? std::nullopt
                         : std::optional(Chunk{0, {{number == 0 ? first : std::to_string(number), number + 1}}});
    };
    restored_.clear();
    auto const restored = [&](Chunk const& chunk, ChunkResult const& result) {
      EXPECT_EQ(result.sums, sums_of(chunk));
      restored_ += result.text;
    };
    while (auto const chunk = output.next(source, restored)) {
      if (chunk->lines.front().number > chunks) {
        return computed;
      }
      ++computed;
      output.write({.text = "line " + chunk->lines.front().text + "\n", .sums = sums_of(*chunk)});
    }
    output.finish();
    return computed;
  }

  /// Numbers that decimal digits do not hold.
  static std::vector<double> sums_of(Chunk const& chunk) {
    return {1.0 / static_cast<double>(chunk.lines.front().number + 2), -1e-300, 0};
  }

  std::string text() const {
    std::string all;
    LineReader reader(path_);
    for (std::string line; reader.next(line);) {
      all += line + "\n";
    }
    return all;
  }
  fs::path beside(std::string const& end) const { return path_.string() + end; }

  TemporaryDirectory directory_;
  fs::path path_ = directory_ / "out.txt";
  std::string restored_;
  std::string const expected_ = "line 0\nline 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\n";
};

TEST_F(CorpusOutputTest, AppearsWhenItIsComplete) {
  EXPECT_EQ(run(5), 5);
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(run(8), 3) << "five chunks are there";
  EXPECT_EQ(text(), expected_);
  EXPECT_FALSE(fs::exists(beside(".partial")));
  EXPECT_FALSE(fs::exists(beside(".journal")));
  EXPECT_EQ(run(8), 8) << "a complete file is replaced";
}

TEST_F(CorpusOutputTest, GoesOnAfterTheLastPieceThatBothFilesHave) {
  for (bool const compressed : {false, true}) {
    path_ = directory_ / (compressed ? "out.gz" : "out");
    run(6);
    std::ofstream(beside(".partial"), std::ios::app) << "half of a pie";
    EXPECT_EQ(run(8), 2) << "bytes without an entry";
    EXPECT_EQ(text(), expected_);
    EXPECT_EQ(restored_, expected_.substr(0, 6 * 7)) << "the chunks that were there";
    run(6);
    fs::resize_file(beside(".partial"), fs::file_size(beside(".partial")) - 3);
    EXPECT_EQ(run(8), 3) << "an entry without all bytes";
    EXPECT_EQ(text(), expected_);
    run(6);
    fs::resize_file(beside(".journal"), fs::file_size(beside(".journal")) - 1);
    EXPECT_EQ(run(8), 3) << "an entry without its end";
    EXPECT_EQ(text(), expected_);
    run(6);
    fs::remove(beside(".partial"));
    EXPECT_EQ(run(8), 8);
    EXPECT_EQ(text(), expected_);
  }
}

TEST_F(CorpusOutputTest, BelongsToItsModelOptionsAndText) {
  run(3);
  expect_usage_error([&] { run(8, "other"); }, "another model or other options");
  expect_data_error([&] { run(8, "same", "changed"); }, "lines 1 to 1");
  EXPECT_EQ(run(8), 5) << "neither changed anything";
  EXPECT_EQ(text(), expected_);
}

TEST_F(CorpusOutputTest, AShorterTextIsNotComplete) {
  run(5);
  CorpusOutput output(path_, "same", {});
  int read = 0;
  auto const shorter = [&]() -> std::optional<Chunk> {
    int const number = read++;
    return number == 3 ? std::nullopt : std::optional(Chunk{0, {{std::to_string(number), number + 1}}});
  };
  expect_data_error([&] { output.next(shorter); }, "the text ends before");
}

TEST_F(CorpusOutputTest, HasOneWriter) {
  CorpusOutput const output(path_, "same", {});
  expect_usage_error([&] { run(8); }, "another process is writing");
}

TEST_F(CorpusOutputTest, FollowsNoLinkAndWaitsForNoFifo) {
  fs::path const victim = directory_.write("victim", "somebody's\n");
  for (char const* const end : {".partial", ".journal", ".lock"}) {
    fs::remove(beside(".lock"));
    fs::create_symlink("victim", beside(end));
    expect_data_error([&] { run(8); }, std::string(end) + ": is a symbolic link");
    fs::remove(beside(end));
    ASSERT_EQ(::mkfifo(beside(end).c_str(), 0600), 0);
    expect_data_error([&] { run(8); }, std::string(end) + ": is not a regular file");
    fs::remove(beside(end));
  }
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_data_error([&] { run(8); }, "is a FIFO without a reader");
  EXPECT_EQ(read_whole(victim), "somebody's\n");
}

TEST_F(CorpusOutputTest, CompressedNothingIsReadable) {
  path_ = directory_ / "none.gz";
  {
    CorpusOutput output(path_, "same", {});
    EXPECT_FALSE(output.next([]() -> std::optional<Chunk> { return std::nullopt; }));
    output.finish();
  }
  EXPECT_GT(fs::file_size(path_), 0U);
  EXPECT_EQ(text(), "");
}

TEST_F(CorpusOutputTest, IsNotTheTextThatIsRead) {
  std::ofstream(path_) << "a\n";
  EXPECT_THROW(CorpusOutput(path_, "", {path_.string()}), UsageError);
  EXPECT_EQ(text(), "a\n");
}

TEST_F(CorpusOutputTest, IdentityLeavesOutFilesAndProcesses) {
  std::string const all =
      output_identity("translate", {"--beam", "5", "--input", "a", "--threads=3", "--output=b"}, "d");
  EXPECT_EQ(all, output_identity("translate", {"--output", "c", "--beam", "5"}, "d"));
  EXPECT_EQ(all, output_identity("translate", {"--checkpoint", "runs/x", "--beam", "5"}, "d"))
      << "the digest names the model";
  EXPECT_NE(all, output_identity("translate", {"--beam", "4"}, "d"));
  EXPECT_NE(all, output_identity("translate", {"--beam", "5"}, "e"));
}

TEST_F(CorpusOutputTest, ALinkToAFileStaysAndItsFileIsWritten) {
  fs::path const link = beside(".link");
  for (bool const there : {false, true}) {
    fs::remove(link);
    fs::create_symlink(path_.filename(), link);
    if (!there) {
      fs::remove(path_);
    }
    CorpusOutput output(link, "same", {});
    output.finish();
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path_)));
  }
}

}  // namespace
}  // namespace heddle
