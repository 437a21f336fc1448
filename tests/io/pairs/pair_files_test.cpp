#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <array>
#include <chrono>
#include <heddle/io/pairs/pair_files.hpp>
#include <thread>

#include "dataset_fixture.hpp"

namespace heddle {
namespace {

class PairFilesTest : public testing::Test {
 protected:
  static std::string lines(std::int64_t count) {
    std::string text;
    for (std::int64_t line = 0; line < count; ++line) {
      text += fmt::format("source {0}\ttarget {0}\n", line);
    }
    return text;
  }
  std::string tsv(std::string const& name, std::string const& text) const { return directory_.write(name, text); }
  void expect_refused(std::string const& text, Texts const& message) const {
    expect_data_error([&] { open_tsv({tsv("wrong.tsv", text)}); }, message);
  }

  TemporaryDirectory directory_;
};

TEST_F(PairFilesTest, ReadsAnyRangeAsItWouldReadTheFile) {
  auto const pairs = open_tsv({tsv("a.tsv", lines(20000)), tsv("b.tsv", lines(5))});
  ASSERT_EQ(pairs->size(), 20005);
  for (auto const& [begin, end] : {std::pair(0, 1), {8190, 8195}, {19998, 20005}, {8192, 16384}}) {
    auto const read = pairs->read({begin, end});
    ASSERT_EQ(std::ssize(read), end - begin);
    for (std::int64_t at = begin; at < end; ++at) {
      TextPair const& pair = read[static_cast<std::size_t>(at - begin)];
      EXPECT_EQ(pair.source, fmt::format("source {}", at % 20000));
      EXPECT_EQ(pair.target, fmt::format("target {}", at % 20000));
    }
  }
}

TEST_F(PairFilesTest, TextIsKnownByItsNameOrByNotBeingHdf5) {
  EXPECT_TRUE(is_text_file("missing.tsv") && is_text_file("missing.tsv.gz"));
  EXPECT_TRUE(is_text_file(tsv("clean.enzh.10", lines(1))));
  EXPECT_FALSE(is_text_file(tsv("dataset", "\x89HDF\r\n\x1A\n and more")));
  EXPECT_FALSE(is_text_file(tsv("damaged.h5", lines(1))));
  EXPECT_FALSE(is_text_file("missing") || is_text_file(directory_.path()));
}

TEST_F(PairFilesTest, EndsOfLinesAndMarksAreNoText) {
  auto const pairs =
      open_tsv({tsv("a.tsv", "\xEF\xBB\xBFone\teins\r\ntwo\tzwei\n\tno source\nthree\tdrei")})->read({0, 4});
  EXPECT_EQ(pairs[0].source, "one");
  EXPECT_EQ(pairs[0].target, "eins");
  EXPECT_TRUE(pairs[2].empty());
  EXPECT_EQ(pairs[3].target, "drei");
}

TEST_F(PairFilesTest, IndexIsKeptAndMadeAgainForAFileThatChanged) {
  std::string const path = tsv("a.tsv", lines(3));
  std::string const digest = open_tsv({path})->digest();
  EXPECT_THAT(directory_.names(), ElementsAre("a.tsv", "a.tsv.heddle-index"));
  auto const written = fs::last_write_time(path + ".heddle-index");
  EXPECT_EQ(open_tsv({path})->digest(), digest);
  EXPECT_EQ(fs::last_write_time(path + ".heddle-index"), written);
  tsv("a.tsv", lines(4));
  auto const changed = open_tsv({path});
  EXPECT_EQ(changed->size(), 4);
  EXPECT_NE(changed->digest(), digest);
  // An index of which a byte is another one is not believed.
  std::string index = read_whole(path + ".heddle-index");
  index[index.find("\"lines\":4") + 8] = '3';
  directory_.write("a.tsv.heddle-index", index);
  EXPECT_EQ(open_tsv({path})->size(), 4);
}

TEST_F(PairFilesTest, IndexOfAFileOfEqualSizeIsMadeAgain) {
  std::string const path = tsv("a.tsv", "one\teins\ntwo\tzwei\n");
  EXPECT_EQ(open_tsv({path})->size(), 2);
  tsv("a.tsv", "two\tzwei one eins\n");
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  EXPECT_EQ(open_tsv({path})->size(), 1);
}

TEST_F(PairFilesTest, ADirectoryThatCannotBeWrittenNeedsNoIndex) {
  fs::create_directory(directory_ / "a.tsv.heddle-index");  // the superuser may write everywhere
  auto const pairs = open_tsv({tsv("a.tsv", lines(3))});
  EXPECT_EQ(pairs->size(), 3);
  expect_contains(pairs->warning(), {"a.tsv: its index cannot be written beside it"});
}

TEST_F(PairFilesTest, ReadsCompressedText) {
  std::string const text = lines(9000);
  gzFile const file = gzopen((directory_ / "a.tsv.gz").c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  std::string frame(ZSTD_compressBound(text.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), text.data(), text.size(), 3));
  tsv("a.tsv.zst", frame);
  for (std::string const name : {"a.tsv.gz", "a.tsv.gz", "a.tsv.zst", "a.tsv.zst"}) {  // again: from the copy
    EXPECT_TRUE(is_text_file(name));
    auto const pairs = open_tsv({directory_ / name});
    EXPECT_EQ(pairs->size(), 9000);
    EXPECT_EQ(pairs->read({8999, 9000}).front().target, "target 8999");
    EXPECT_EQ(pairs->digest(), open_tsv({tsv("b.tsv", text)})->digest());
    EXPECT_EQ(read_whole(directory_ / (name + ".heddle-text")), text);
  }
  directory_.write("a.tsv.gz.heddle-text", "short");
  EXPECT_EQ(open_tsv({directory_ / "a.tsv.gz"})->size(), 9000);
}

/// Makes a file or a pipe the standard input.
class StandardInput {
 public:
  explicit StandardInput(std::string const& path) : before_(::dup(0)) {
    int const opened = ::open(path.c_str(), O_RDONLY);
    ::dup2(opened, 0);
    ::close(opened);
  }
  explicit StandardInput(int descriptor) : before_(::dup(0)) { ::dup2(descriptor, 0); }
  ~StandardInput() {
    ::dup2(before_, 0);
    ::close(before_);
  }
  StandardInput(StandardInput const&) = delete;
  StandardInput& operator=(StandardInput const&) = delete;

 private:
  int before_;
};

TEST_F(PairFilesTest, TheStandardInputIsAStream) {
  std::string const text = lines(30);
  StandardInput const input(tsv("stream", text));
  auto const pairs = open_tsv({"-"});
  EXPECT_TRUE(pairs->is_stream());
  EXPECT_EQ(pairs->read({0, 2})[1].target, "target 1");
  EXPECT_EQ(pairs->read({10, 12})[0].source, "source 10") << "those before are passed over";
  EXPECT_THAT(message_of<Error>([&] { pairs->read({5, 6}); }), HasSubstr("line 6 was read before"));
  EXPECT_EQ(pairs->read({12, 100}).size(), 18U);
  EXPECT_THAT(pairs->read({100, 200}), IsEmpty());
  expect_data_error(
      [&] {
        open_tsv({"-"})->read({31, 40});
      },
      {"the standard input ends after line 30", "as line 31", "send the same lines again"});
}

TEST_F(PairFilesTest, LinesOfAStreamThatAreWrongAreNamed) {
  auto const refused = [&](std::string const& text, Texts const& message) {
    StandardInput const input(tsv("stream", text));
    expect_data_error([&] { open_tsv({"-"})->read({0, 10}); }, message);
  };
  refused("a\tb\nc\n", {"the standard input: line 2 has 0 tabs; expected SOURCE<TAB>TARGET"});
  refused("a\tb\nc\td\t0-0\n", {"line 2 has 2 tabs"});
  refused("a\tb\t0-1\n", {"the standard input, line 1: \"0-1\" is not a link"});
  refused("a\tb\nc\t\xFF\n", {"the standard input: line 2: byte 3 (0xFF) is not valid UTF-8"});
}

TEST_F(PairFilesTest, AWaitForAStreamCanBeEnded) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  StandardInput const input(ends[0]);
  auto const pairs = open_tsv({"-"});
  std::string message;
  std::thread reading([&] { message = message_of<Error>([&] { pairs->read({0, 1}); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  pairs->interrupt();
  reading.join();
  EXPECT_THAT(message, HasSubstr("interrupted"));
  EXPECT_THAT(message_of<Error>([&] { pairs->read({0, 1}); }), HasSubstr("not read any more"));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(PairFilesTest, AlignmentsAreAThirdColumnOrFile) {
  auto const pairs = open_tsv({tsv("a.tsv", "a b\tx y z\t0-0 1-2\nc\td\t\n")});
  EXPECT_THAT(pairs->fields(), ElementsAre(SampleField::alignment));
  EXPECT_THAT(pairs->read({0, 2})[0].links, ElementsAre(TokenLink{0, 0}, TokenLink{1, 2}));
  EXPECT_THAT(pairs->read({0, 2})[1].links, IsEmpty());
  ParallelFiles const files{.source = {directory_.write("s", "a b\n")},
                            .target = {directory_.write("t", "x\n")},
                            .alignments = {directory_.write("links", "1-0\n")}};
  EXPECT_THAT(open_parallel(files)->read({0, 1})[0].links, ElementsAre(TokenLink{1, 0}));
  directory_.write("links", "2-0\n");
  auto const wrong = open_parallel(files);
  expect_data_error([&] { wrong->read({0, 1}); }, {"links, line 1: \"2-0\" is not a link", "2 and 1 words"});
}

TEST_F(PairFilesTest, RefusesWhatIsNotPairsOfText) {
  expect_refused("a\tb\nc\t\xFF\n", {"wrong.tsv: line 2 has a byte 3 that is not valid UTF-8"});
  EXPECT_FALSE(fs::exists(directory_ / "wrong.tsv.heddle-index"));
  expect_refused("a b\n", {"wrong.tsv: line 1 has 0 tabs; expected SOURCE<TAB>TARGET"});
  expect_refused("a\tb\nc\td\te\n", {"wrong.tsv: line 2 has not 1 tabs, as line 1 has"});
  expect_refused("", {"wrong.tsv: the file is empty"});
  expect_data_error(
      [&] { open_parallel({.source = {directory_.write("s", "1\n2\n")}, .target = {directory_.write("t", "1\n")}}); },
      {"s has 2 lines", "t has 1; line n of one translates line n of the other"});
  expect_data_error([&] { open_tsv({directory_ / "missing.tsv"}); }, {"missing.tsv: does not exist"});
}

TEST_F(PairFilesTest, AFileThatChangesWhileItIsUsedIsRefused) {
  std::string const path = tsv("a.tsv", lines(9000));
  auto const pairs = open_tsv({path});
  fs::resize_file(path, 100);
  expect_data_error([&] { pairs->read({8192, 8193}); }, {"a.tsv: changed while it was used, after line 8192"});
}

TEST_F(PairFilesTest, ADatasetsPairsHaveTheirTokensAndFields) {
  write_fields(directory_ / "fields.h5", 12);
  Dataset const dataset = Dataset::open(directory_ / "fields.h5");
  auto const pairs = dataset_pairs(dataset, dataset.fields());
  EXPECT_EQ(pairs->digest(), dataset.digest());
  TextPair pair = pairs->read({11, 12}).front();
  ASSERT_TRUE(pair.tokens);
  EXPECT_EQ(pair.tokens->source.tokens, dataset.source(11));
  EXPECT_EQ(pair.tokens->alignment, pair_with_fields(11).alignment);
  pair.make_text(dataset.vocabulary());
  EXPECT_FALSE(pair.tokens);
  EXPECT_EQ(pair.source, dataset.source_tokenizer().decode(dataset.source(11)));
  EXPECT_FALSE(pair.links.empty());
  EXPECT_EQ(std::ssize(pair.weights), count_words(pair.target) + 1);
}

}  // namespace
}  // namespace heddle
