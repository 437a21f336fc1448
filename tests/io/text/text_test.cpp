#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using test::message_of;
using test::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(read_error(path), AllOf(HasSubstr(path.string()), HasSubstr("line 2"), HasSubstr("0xF6")));
}

TEST(LineReader, RefusesWhatItCannotRead) {
  TemporaryDirectory const directory;
  EXPECT_THAT(read_error(directory / "absent"), AllOf(HasSubstr("absent"), HasSubstr("No such file")));
  EXPECT_THAT(read_error(directory.path()), HasSubstr("directory"));
  auto const path = directory.write("endless", std::string(LineReader::longest_line_bytes + 1, 'x'));
  EXPECT_THAT(read_error(path), HasSubstr("line 1"));
}

TEST(LineReader, NoticesACutOffGzipFile) {
  TemporaryDirectory const directory;
  std::string content;
  for (int i = 0; i < 20000; ++i) {
    content += std::to_string(i * 7919) + "\n";
  }
  auto const path = write_gzip(directory, content);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(read_error(path), HasSubstr("gzip"));
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
  directory.write("damaged", test::read_whole(path).substr(0, 10) + "\x07 no deflate stream");
  EXPECT_THAT(read_error(directory / "damaged"), HasSubstr("gzip"));
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

TEST(Words, SplitAtUnicodeSpaces) {
  EXPECT_THAT(split_words("\u00a0 a\tb\u3000\u2003c\x1f"), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(split_words(" \n").empty());
  EXPECT_THAT(split_words("zero\u200Bwidth"), ElementsAre("zero\u200Bwidth"));
}

}  // namespace
}  // namespace heddle
