#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/hdf5/hdf5.hpp>

#include "dataset_fixture.hpp"

namespace heddle {
namespace {

/// Whether the file with one bit changed is refused, or gives its samples as before.
bool refused_or_the_same(TemporaryDirectory const& directory, std::string bytes, std::size_t place, int bit,
                         bool& refused) {
  bytes[place] = static_cast<char>(bytes[place] ^ (1 << bit));
  auto const path = directory.write("flipped.h5", bytes);
  refused = true;
  try {
    Dataset const dataset = Dataset::open(path);
    bool same = dataset.size() == 200;
    for (int64_t i = 0; same && i < 200; ++i) {
      same = dataset.source(i) == sentence(i, 60) && dataset.target(i) == sentence(i + 3, 50);
    }
    refused = false;
    return same;
  } catch (DataError const&) {
    return true;
  }
}

TEST(Dataset, EachFlippedBitOfAFieldIsDetected) {
  TemporaryDirectory const directory;
  write_fields(directory / "fields.h5", 200);
  std::string const bytes = read_whole(directory / "fields.h5");
  std::vector<int32_t> links;
  std::vector<float> weights;
  for (int64_t index = 0; index < 200; ++index) {
    Sample const pair = pair_with_fields(index);
    for (auto const& [source, target] : pair.alignment) {
      links.insert(links.end(), {source, target});
    }
    weights.insert(weights.end(), pair.target.weights.begin(), pair.target.weights.end());
  }
  for (auto const values : {std::as_bytes(std::span(links)), std::as_bytes(std::span(weights))}) {
    std::size_t const begin = bytes.find({reinterpret_cast<char const*>(values.data()), values.size()});
    ASSERT_NE(begin, std::string::npos);
    for (std::size_t flip = 0; flip < 20; ++flip) {
      std::string flipped = bytes;
      flipped[begin + flip * 7919 % values.size()] ^= static_cast<char>(1 << (flip % 7));
      Dataset const dataset = Dataset::open(directory.write("flipped.h5", flipped));
      Sample pair = pair_with_fields(11);
      EXPECT_THROW(dataset.read_fields(11, dataset.fields(), pair), DataError);
      EXPECT_THROW(dataset.verify(), DataError);
    }
  }
}

TEST(Dataset, EachFlippedBitOfTokensIsDetectedAndNoneElsewhereHarms) {
  TemporaryDirectory const directory;
  write_sentences(directory / "train.h5", 200);
  EXPECT_NO_THROW(Dataset::open(directory / "train.h5").verify());
  std::string const bytes = read_whole(directory / "train.h5");
  for (int32_t const vocabulary : {60, 50}) {
    std::string tokens;
    for (int64_t i = 0; i < 200; ++i) {
      for (int32_t const id : sentence(vocabulary == 60 ? i : i + 3, vocabulary)) {
        tokens += {static_cast<char>(id), '\0'};
      }
    }
    std::size_t const begin = bytes.find(tokens);
    ASSERT_NE(begin, std::string::npos) << "tokens are stored as 16 bits";
    for (std::size_t flip = 0; flip < 40; ++flip) {
      bool refused = false;
      std::size_t const place = begin + flip * 7919 % tokens.size();
      EXPECT_TRUE(refused_or_the_same(directory, bytes, place, static_cast<int>(flip % 8), refused));
      EXPECT_TRUE(refused) << "token " << (place - begin) / 2;
      EXPECT_THROW(Dataset::open(directory / "flipped.h5").verify(), DataError);
    }
  }
  // Bits all over the file: headers, vocabularies, digests, lengths, unused bytes.
  for (std::size_t place = 0; place < bytes.size(); place += place < 4096 || place > bytes.size() - 4096 ? 13 : 2003) {
    bool refused = false;
    EXPECT_TRUE(refused_or_the_same(directory, bytes, place, static_cast<int>(place % 8), refused)) << place;
  }
}

/// A dataset's content, each part of which a test may damage before it is written, with the digests that belong to it.
struct Content {
  struct Side {
    std::vector<int32_t> tokens;
    std::vector<int64_t> offsets;
    std::vector<int64_t> lengths;  ///< length, samples, length, samples …
    std::string model;
  };

  std::string format = "heddle-dataset";
  int64_t version = 3;
  std::string vocabulary_digest = separate_vocabulary().digest();
  std::string digest;  ///< empty: the right one
  Side source{{4, 5, 6}, {0, 1, 3}, {1, 1, 2, 1}, separate_vocabulary().source.model()};
  Side target{{7, 8}, {0, 1, 2}, {1, 2}, separate_vocabulary().target.model()};
  std::vector<int64_t> longer = {1, 1, 2, 1};
  std::vector<int64_t> both = {2, 1, 3, 1};
  bool tokens_as_floats = false;
  bool wide_tokens = false;
  bool spoil_digest_of_tokens = false;
};

template <typename T>
std::span<uint8_t const> bytes_of(std::vector<T> const& values) {
  return {reinterpret_cast<uint8_t const*>(values.data()), values.size() * sizeof(T)};
}

/// Writes an array and the digests of its blocks, the first one spoilt if it is to be; returns the digest of its table.
/// The table is in one chunk, too large for HDF5's cache: it is read from the file each time.
template <typename T>
std::string write_protected(hdf5::Group& group, std::string const& name, std::vector<T> const& values,
                            bool spoil = false) {
  constexpr std::size_t block_bytes = 128 << 10;
  group.write_array<T>(name + "s", {std::ssize(values)}, values);
  std::vector<uint8_t> table;
  for (auto left = bytes_of(values); !left.empty(); left = left.subspan(std::min(block_bytes, left.size()))) {
    auto const digest = sha256_bytes(left.first(std::min(block_bytes, left.size())));
    table.insert(table.end(), digest.begin(), digest.end());
  }
  if (spoil) {
    table.front() ^= 1U;
  }
  group.create_extendible_array(name + "_digests", hdf5::ElementType::uint8, {2 << 20}).append_bytes(table);
  return sha256(table);
}

std::string write_side(hdf5::Group side, Content const& content, Content::Side const& written) {
  side.write_bytes("model", written.model);
  std::string tables;
  std::vector<int32_t> const& ids = written.tokens;
  if (content.tokens_as_floats) {
    tables = write_protected(side, "token", std::vector<float>(ids.begin(), ids.end()));
  } else if (content.wide_tokens) {
    tables = write_protected(side, "token", ids);
  } else {
    tables =
        write_protected(side, "token", std::vector<uint16_t>(ids.begin(), ids.end()), content.spoil_digest_of_tokens);
  }
  return tables + write_protected(side, "offset", written.offsets);
}

void write_content(std::filesystem::path const& path, Content const& content) {
  hdf5::File file = hdf5::File::create(path);
  file.set_attribute("format", content.format);
  file.set_attribute("format_version", content.version);
  file.set_attribute("vocabulary_digest", content.vocabulary_digest);
  std::string digests = content.vocabulary_digest;
  digests += write_side(file.create_group("source"), content, content.source);
  digests += write_side(file.create_group("target"), content, content.target);
  {
    hdf5::Group lengths = file.create_group("lengths");
    auto const write = [&](char const* name, std::vector<int64_t> const& counts) {
      lengths.write_array<int64_t>(name, {std::ssize(counts) / 2, 2}, counts);
      digests += sha256(bytes_of(counts));
    };
    write("source", content.source.lengths);
    write("target", content.target.lengths);
    write("longer", content.longer);
    write("both", content.both);
  }
  file.set_attribute("digest", content.digest.empty() ? sha256(digests) : content.digest);
  file.close();
}

/// The error message of opening and reading the damaged dataset.
std::string read_error(std::function<void(Content&)> const& spoil) {
  TemporaryDirectory const directory;
  Content content;
  spoil(content);
  write_content(directory / "x.h5", content);
  return message_of<DataError>([&] { read_all(Dataset::open(directory / "x.h5")); });
}

TEST(Dataset, ChecksAFileFromElsewhere) {
  EXPECT_EQ(read_error([](Content&) {}), "");
  expect_contains(read_error([](Content& c) { c.format = "heddle-checkpoint"; }), "not a dataset");
  expect_contains(read_error([](Content& c) { c.version = 1; }), "version 1; this Heddle reads versions 3 and 4: run");
  expect_contains(read_error([](Content& c) { c.version = 2; }), "run `heddle prepare` again");
  expect_contains(read_error([](Content& c) { c.vocabulary_digest[0] = 'x'; }), "not the one it was made with");
  expect_contains(read_error([](Content& c) { c.source.model = separate_vocabulary().target.model(); }),
                  "not the one it was made with");
  expect_contains(read_error([](Content& c) {
                    c.source.model = "nonsense";
                    c.vocabulary_digest = sha256(sha256(c.source.model) + sha256(c.target.model));
                  }),
                  {"source", "SentencePiece"});
  expect_contains(read_error([](Content& c) { c.digest = std::string(64, '0'); }), "its attribute digest is 00");
}

TEST(Dataset, ChecksSamplesFromElsewhere) {
  expect_contains(read_error([](Content& c) { c.spoil_digest_of_tokens = true; }),
                  {"/source/tokens: elements 0 to 2", "damaged"});
  expect_contains(read_error([](Content& c) { c.source.tokens[2] = 60; }), {"/source/tokens", "token id 60", "59"});
  expect_contains(read_error([](Content& c) { c.target.tokens[0] = 0; }), "/target/tokens: token id 0 is");
  expect_contains(read_error([](Content& c) { c.target.tokens[0] = 2; }), "start token");
  expect_contains(read_error([](Content& c) { c.target.tokens[1] = 3; }), "end token, which no sentence has");
  EXPECT_EQ(read_error([](Content& c) { c.target.tokens[1] = 1; }), "") << "unknown pieces occur";
  std::string const places = "expected places that rise from 0 to the number of tokens, 3";
  expect_contains(read_error([](Content& c) { c.source.offsets = {1, 2, 3}; }), {"/source/offsets", places});
  expect_contains(read_error([](Content& c) { c.source.offsets = {0, 1, 4}; }), "element 2 is 4 after 1");
  expect_contains(read_error([](Content& c) { c.source.offsets = {0, 5, 3}; }), "element 1 is 5 after 0");
  expect_contains(read_error([](Content& c) { c.source.offsets = {0, 0, 3}; }), "element 1 is 0 after 0");
  expect_contains(read_error([](Content& c) {
                    c.source.offsets = {0, 3};
                  }),
                  "1 source sentences but 2 target sentences");
  expect_contains(read_error([](Content& c) { c.source.offsets = {0}, c.source.tokens = {}; }), "no sentence");
  expect_contains(read_error([](Content& c) { c.tokens_as_floats = true; }), "/source/tokens");
  expect_contains(read_error([](Content& c) { c.wide_tokens = true; }), "expected uint16");
  expect_contains(read_error([](Content& c) { c.source.lengths = {1, 2}; }), "counts 2 samples of 2 tokens");
  expect_contains(read_error([](Content& c) { c.source.lengths = {2, 1, 1, 1}; }), "rising lengths");
  expect_contains(read_error([](Content& c) { c.longer = {int64_t{1} << 62, 2}; }), "more than 2^63");
  expect_contains(read_error([](Content& c) { c.longer = {1, 1, 9, 1}; }), "lengths/longer: counts 2 samples");
}

TEST(Dataset, AnotherOneWrittenOverItIsRefusedWhereItBegins) {
  constexpr int64_t pairs = 150'000;  // of one token on each side: blocks of 65,536 pairs
  Content content;
  content.source.tokens.assign(pairs, 5);
  content.source.offsets.resize(pairs + 1);
  std::iota(content.source.offsets.begin(), content.source.offsets.end(), int64_t{0});
  content.source.lengths = {1, pairs};
  content.target = {content.source.tokens, content.source.offsets, {1, pairs}, content.target.model};
  content.longer = {1, pairs};
  content.both = {2, pairs};
  TemporaryDirectory const directory;
  write_content(directory / "x.h5", content);
  std::fill(content.source.tokens.begin() + 70'000, content.source.tokens.end(), 6);
  write_content(directory / "y.h5", content);
  std::string const other = read_whole(directory / "y.h5");
  ASSERT_EQ(other.size(), std::filesystem::file_size(directory / "x.h5"));

  std::optional<Dataset> dataset(Dataset::open(directory / "x.h5"));
  std::fstream(directory / "x.h5", std::ios::binary | std::ios::in | std::ios::out) << other;
  EXPECT_EQ(dataset->source(65'535), std::vector<int32_t>{5});
  expect_data_error([&] { dataset->source(65'536); },
                    {"x.h5: /source/tokens: elements 65536 to 131071", "another dataset"});
  EXPECT_EQ(dataset->target(149'999), std::vector<int32_t>{5});
  dataset.reset();
  EXPECT_EQ(Dataset::open(directory / "x.h5").source(70'000), std::vector<int32_t>{6})
      << "it is complete when it is opened again";
}

TEST(Dataset, SaysWhatAForeignFileIsNot) {
  TemporaryDirectory const directory;
  expect_data_error([&] { Dataset::open(directory / "absent.h5"); }, "absent.h5");
  auto const path = directory.write("text.h5", "no HDF5 at all");
  expect_data_error([&] { Dataset::open(path); }, "text.h5");
}

}  // namespace
}  // namespace heddle
