#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <chrono>
#include <condition_variable>
#include <heddle/io/text/text.hpp>
#include <mutex>
#include <thread>

#include "read_lines.hpp"
#include "test.hpp"

namespace heddle {
namespace {

std::string read_error(std::filesystem::path const& path) {
  return message_of<DataError>([&] { read_lines(path); });
}

std::filesystem::path write_gzip(TemporaryDirectory const& directory, std::string const& content) {
  std::filesystem::path const path = directory / "no-telling-name";
  gzFile const file = gzopen(path.c_str(), "wb");
  EXPECT_EQ(gzwrite(file, content.data(), static_cast<unsigned>(content.size())), static_cast<int>(content.size()));
  EXPECT_EQ(gzclose(file), Z_OK);
  return path;
}

/// A zstd frame.
std::string zstd(std::string const& content) {
  std::string frame(ZSTD_compressBound(content.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), content.data(), content.size(), 3));
  return frame;
}

TEST(LineReader, SplitsAtBothLineEndsAndKeepsEmptyLines) {
  TemporaryDirectory const directory;
  auto const path = directory.write("text", "\xEF\xBB\xBFone\r\n\ntwo words \nlast, without an end");
  EXPECT_THAT(read_lines(path), ElementsAre("one", "", "two words ", "last, without an end"));
  EXPECT_THAT(read_lines(directory.write("dos", "one\r\ntwo\r")), ElementsAre("one", "two"));
  EXPECT_TRUE(read_lines(directory.write("empty", "")).empty());
  EXPECT_THAT(read_lines(directory.write("newline", "\n")), ElementsAre(""));
}

TEST(LineReader, ReadsGzipWhateverTheName) {
  TemporaryDirectory const directory;
  std::string content;
  for (int i = 0; i < 50000; ++i) {
    content += "Zeile " + std::to_string(i) + " mit Umlaut ä\n";
  }
  auto const lines = read_lines(write_gzip(directory, content));
  ASSERT_EQ(lines.size(), 50000U);
  EXPECT_EQ(lines[49999], "Zeile 49999 mit Umlaut ä");
}

TEST(LineReader, NamesFileAndLineOfInvalidUtf8) {
  TemporaryDirectory const directory;
  auto const path = directory.write("latin1", "gut\nsch\xF6n\n");
  expect_contains(read_error(path), {path.string(), "line 2", "0xF6"});
}

TEST(LineReader, RefusesWhatItCannotRead) {
  TemporaryDirectory const directory;
  expect_contains(read_error(directory / "absent"), "absent: does not exist");
  expect_contains(read_error(directory.path()), "directory");
  auto const path = directory.write("endless", std::string(LineReader::longest_line_bytes + 1, 'x'));
  expect_contains(read_error(path), "line 1");
}

TEST(LineReader, ReadsMembersOfAGzipFileThatFollowEachOther) {
  TemporaryDirectory const directory;
  std::string const first = read_whole(write_gzip(directory, "one\ntw"));
  std::string const second = read_whole(write_gzip(directory, "o\n" + std::string(200'000, 'x') + "\n"));
  std::string const empty = read_whole(write_gzip(directory, ""));
  std::string const zeros(100'000, '\0');
  auto const path = directory.write("members", first + empty + zeros + second + zeros);
  EXPECT_THAT(read_lines(path), ElementsAre("one", "two", std::string(200'000, 'x')));
  directory.write("half", first + second.substr(0, 15));
  expect_contains(read_error(directory / "half"), fmt::format("after byte {}", first.size() + 15));
}

TEST(LineReader, NamesTheByteWhereAGzipFileIsDamagedAfterAMember) {
  TemporaryDirectory const directory;
  std::string const member = read_whole(write_gzip(directory, "one\ntwo\n"));
  for (std::string const& rest : {"\x1E" + member.substr(1), "\x1F\x8C" + member.substr(2), std::string("\x1F"),
                                  std::string("text"), std::string("\0\0x", 3)}) {
    std::size_t const byte = member.size() + rest.find_first_not_of('\0') + 1;
    expect_contains(read_error(directory.write("damaged", member + rest)),
                    {"damaged: line 3: ", fmt::format("byte {} of the gzip file", byte)});
  }
  std::string wrong = member;
  wrong[2] = 7;  // the method of compression
  expect_contains(read_error(directory.write("damaged", member + wrong)), "gzip data at byte ");
}

/// Reads lines of a pipe in a thread of its own.
class PipeReader {
 public:
  explicit PipeReader(TemporaryDirectory const& directory) : path_(directory / "pipe") {
    EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    pipe_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    thread_ = std::thread([this] {
      LineReader reader(path_);
      for (std::string line; reader.next(line);) {
        std::scoped_lock const lock(mutex_);
        lines_.push_back(line);
        changed_.notify_all();
      }
    });
  }
  ~PipeReader() {
    ::close(pipe_);  // the end of the text
    thread_.join();
  }
  PipeReader(PipeReader const&) = delete;
  PipeReader& operator=(PipeReader const&) = delete;

  void write(std::string const& bytes) const {
    EXPECT_EQ(::write(pipe_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  /// Waits for this many lines while the pipe is open.
  std::vector<std::string> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return lines_.size() >= count; });
    return lines_;
  }

 private:
  std::filesystem::path path_;
  int pipe_ = -1;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  std::thread thread_;
};

TEST(LineReader, GivesALineThatComesThroughAPipeBeforeTheNextOneIsThere) {
  TemporaryDirectory const directory;
  PipeReader reader(directory);
  reader.write("one\ntw");
  EXPECT_THAT(reader.wait_for(1), ElementsAre("one"));
  reader.write("o\n");
  EXPECT_THAT(reader.wait_for(2), ElementsAre("one", "two"));
}

TEST(LineReader, GivesALineOfAGzipStreamThatGoesOn) {
  TemporaryDirectory const directory;
  auto const path = write_gzip(directory, "one\ntwo\n");
  std::string const member = read_whole(path);
  PipeReader reader(directory);
  reader.write(member.substr(0, 1));
  reader.write(member.substr(1));
  EXPECT_THAT(reader.wait_for(2), ElementsAre("one", "two"));
  reader.write(member);
  EXPECT_THAT(reader.wait_for(4), ElementsAre("one", "two", "one", "two"));
}

TEST(LineReader, KnowsATextThatCanBeReadOnlyOnce) {
  TemporaryDirectory const directory;
  auto const file = directory.write("text", "one\n");
  auto const pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(pipe, directory / "link");
  EXPECT_TRUE(is_read_once(pipe));
  EXPECT_TRUE(is_read_once(directory / "link"));
  for (std::filesystem::path const& text : {file, directory / "absent", std::filesystem::path("/dev/zero")}) {
    EXPECT_FALSE(is_read_once(text)) << text;
  }
  EXPECT_EQ(text_path("-"), "/dev/stdin");
  require_different_pipes({file, file, pipe, "/dev/null", "/dev/null"});
  expect_usage_error([&] { require_different_pipes({pipe, file, directory / "link"}); }, "link is given for two texts");
  expect_usage_error([&] { require_different_pipes({"-", file, "-"}); }, "there is one standard input");
}

TEST(LineReader, KnowsATextThatIsTyped) {
  int const keyboard = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(keyboard, 0);
  ASSERT_EQ(::grantpt(keyboard), 0);
  ASSERT_EQ(::unlockpt(keyboard), 0);
  LineReader terminal(::ptsname(keyboard));
  EXPECT_TRUE(terminal.is_terminal());
  EXPECT_EQ(::write(keyboard, "typed\n", 6), 6);
  std::string line;
  EXPECT_TRUE(terminal.next(line));
  EXPECT_EQ(line, "typed");
  ::close(keyboard);
  TemporaryDirectory const directory;
  EXPECT_FALSE(LineReader(directory.write("text", "")).is_terminal());
}

TEST(LineReader, ReplacesAndCountsWhatIsNotUtf8WhereAsked) {
  TemporaryDirectory const directory;
  auto const path = directory.write("mixed", "\xEF\xBB\xBFgut\nsch\xF6n\nok\n\xE2\x82\n");
  EXPECT_THAT(read_lines(path, InvalidUtf8::replace), ElementsAre("gut", "sch\uFFFDn", "ok", "\uFFFD"));
  LineReader reader(path, InvalidUtf8::replace);
  std::vector<bool> repaired;
  for (std::string line; reader.next(line);) {
    repaired.push_back(reader.repaired());
  }
  EXPECT_THAT(repaired, ElementsAre(false, true, false, true));
  EXPECT_EQ(reader.invalid_lines().count, 2);
  EXPECT_EQ(reader.invalid_lines().first, 2);
}

TEST(LineReader, NoticesACutOffGzipFile) {
  TemporaryDirectory const directory;
  std::string content;
  for (int i = 0; i < 20000; ++i) {
    content += std::to_string(i * 7919) + "\n";
  }
  auto const path = write_gzip(directory, content);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  expect_contains(read_error(path), "gzip");
  // The text is shorter than a block of the reader and still gives the lines before the cut.
  auto const small = write_gzip(directory, content.substr(0, 3000));
  std::filesystem::resize_file(small, std::filesystem::file_size(small) - 20);
  LineReader reader(small);
  std::string line;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(reader.next(line));
    EXPECT_EQ(line, std::to_string(i * 7919));
  }
  EXPECT_THAT(read_error(small), AllOf(HasSubstr("gzip"), Not(HasSubstr("line 1:"))));
  directory.write("damaged", read_whole(path).substr(0, 10) + "\x07 no deflate stream");
  expect_contains(read_error(directory / "damaged"), "gzip");
}

TEST(LineReader, ReadsFramesOfZstdWhateverTheName) {
  TemporaryDirectory const directory;
  std::string content;
  for (int i = 0; i < 50000; ++i) {
    content += fmt::format("Zeile {} mit Umlaut ä\n", i * 7919 % 50021);
  }
  auto const lines = read_lines(directory.write("text", content));
  EXPECT_EQ(read_lines(directory.write("one.zst", zstd(content))), lines);
  std::string const skipped("\x5A\x2A\x4D\x18\x03\0\0\0abc", 11);  // a frame without data, as pzstd writes them
  std::string const frames = skipped + zstd(content.substr(0, 99'999)) + zstd("") + skipped + std::string(3, '\0') +
                             zstd(content.substr(99'999));
  EXPECT_EQ(read_lines(directory.write("no-telling-name", frames)), lines);
  EXPECT_THAT(read_lines(directory.write("plain.zst", "(\nP*M\n")), ElementsAre("(", "P*M"));
  EXPECT_THAT(read_lines(directory.write("short.zst", "P*")), ElementsAre("P*"));
}

TEST(LineReader, NamesTheByteWhereAZstdFileIsDamaged) {
  TemporaryDirectory const directory;
  std::string const frame = zstd("one\ntwo\n");
  auto const error = [&](std::string const& bytes) { return read_error(directory.write("text.zst", bytes)); };
  expect_contains(error(frame + frame.substr(0, frame.size() - 1)),
                  {"text.zst: line 4: damaged or cut-off zstd data",
                   fmt::format("end of file after byte {})", 2 * frame.size() - 1)});
  expect_contains(error(frame.substr(0, 5)), "line 1: damaged or cut-off zstd data");
  expect_contains(error(frame + "more"), fmt::format("byte {} of the zstd file", frame.size() + 1));
  std::string wrong = frame;
  wrong[4] = 8;  // a reserved bit of the frame's header
  expect_contains(error(frame + wrong), "zstd data at byte ");
  std::string const wide("\x28\xB5\x2F\xFD\0\x90\x01\0\0", 9);  // an empty frame with a window of 256 MiB
  expect_contains(error(wide), "needs a window of more than 128 MiB");
}

TEST(Utf8, FindsEveryKindOfIllFormedBytes) {
  EXPECT_EQ(find_invalid_utf8("a\u00e4\u20ac\U0001F600\U0010FFFF\uD7FF\uE000"), std::string::npos);
  for (char const* const bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xC3(", "\xE2(\xAC"}) {
    EXPECT_EQ(find_invalid_utf8(std::string("ok") + bad), 2U) << testing::PrintToString(bad);
    EXPECT_THROW(decode_utf8(bad), DataError);
  }
  EXPECT_EQ(decode_utf8("aä€😀"), U"aä€😀");
}

TEST(Utf8, ReplacesIllFormedSequencesAsPythonDoes) {
  // bytes(...).decode("utf-8", "replace"); the last one is Unicode 15's table 3-8.
  EXPECT_EQ(replace_invalid_utf8("fine: \u00e4\u20ac\U0001F600"), "fine: \u00e4\u20ac\U0001F600");
  EXPECT_EQ(replace_invalid_utf8(""), "");
  EXPECT_EQ(replace_invalid_utf8("\xC3("), "\uFFFD(");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), "\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98x\xF0\x9F"), "\uFFFDx\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xE0\x9F\xBF"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80\xF5"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                                 "b\x80"
                                 "c\x80\xBF"
                                 "d"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
}

TEST(Words, SplitAtUnicodeSpaces) {
  EXPECT_THAT(split_words("\u00a0 a\tb\u3000\u2003c\x1f"), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(split_words(" \n").empty());
  EXPECT_THAT(split_words("zero\u200Bwidth"), ElementsAre("zero\u200Bwidth"));
}

}  // namespace
}  // namespace heddle
