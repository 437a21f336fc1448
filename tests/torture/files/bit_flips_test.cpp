#include <fcntl.h>
#include <unistd.h>

#include <random>

#include "small_files.hpp"
#include "test.hpp"
#include "torture.hpp"

namespace heddle {
namespace {

/// A file that is changed in place and changed back.
class OpenFile {
 public:
  explicit OpenFile(fs::path const& path) : descriptor_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {}
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(OpenFile const&) = delete;
  OpenFile& operator=(OpenFile const&) = delete;

  void put(std::int64_t offset, char byte) const {
    if (::pwrite(descriptor_, &byte, 1, offset) != 1) {
      throw std::runtime_error("the test cannot write");
    }
  }

 private:
  int descriptor_;
};

/// The bits of some files, each under a number.
class Bits {
 public:
  explicit Bits(std::vector<fs::path> paths) : paths_(std::move(paths)) {
    for (fs::path const& path : paths_) {
      contents_.push_back(read_whole(path));
      bits_ += std::ssize(contents_.back()) * 8;
    }
  }

  std::int64_t count() const { return bits_; }

  /// Calls `check` while bit `number` is flipped.
  bool flipped(std::int64_t number, std::function<bool()> const& check) const {
    std::size_t file = 0;
    while (number >= std::ssize(contents_[file]) * 8) {
      number -= std::ssize(contents_[file++]) * 8;
    }
    char const good = contents_[file][static_cast<std::size_t>(number / 8)];
    OpenFile const open(paths_[file]);
    open.put(number / 8, static_cast<char>(good ^ (1 << number % 8)));
    // Also changed back where the check throws.
    auto const back = [&](OpenFile const* changed) { changed->put(number / 8, good); };
    std::unique_ptr<OpenFile const, decltype(back)> const guard(&open, back);
    return check();
  }

 private:
  std::vector<fs::path> paths_;
  std::vector<std::string> contents_;
  std::int64_t bits_ = 0;
};

/// Cases that are spread over all bits; all bits, once each, if there are that many.
std::int64_t spread(std::int64_t number, std::int64_t bits) {
  std::int64_t stride = 1'000'003;
  while (std::gcd(stride, bits) != 1) {
    ++stride;
  }
  return number % bits * stride % bits;
}

TEST(BitFlips, EachBitOfACheckpointIsDetected) {
  TemporaryDirectory const directory;
  fs::path const checkpoint = small_checkpoint(directory.path(), {.step = 7});
  Bits const bits(files_in(checkpoint));
  ASSERT_GT(bits.count(), 500'000);
  CaseResults const results = run_cases(torture_count(20'000, bits.count()), [&](std::int64_t number) {
    return bits.flipped(spread(number, bits.count()), [&] {
      load_all(checkpoint);
      return false;  // there are no bits without meaning in a checkpoint
    });
  });
  EXPECT_NO_THROW(load_all(checkpoint)) << "the last bit was not flipped back";
  print_figures(results.text(fmt::format("of {} bits of a checkpoint flipped", bits.count())));
  EXPECT_TRUE(results.good());
}

TEST(BitFlips, NoBitOfADatasetChangesItsSamples) {
  TemporaryDirectory const directory;
  fs::path const dataset = small_dataset(directory / "train.h5");
  Samples const samples = read_samples(dataset);
  Bits const bits({dataset});
  CaseResults const results = run_cases(torture_count(4'000, bits.count()), [&](std::int64_t number) {
    return bits.flipped(spread(number, bits.count()), [&] { return read_samples(dataset) == samples; });
  });
  print_figures(results.text(fmt::format("of {} bits of a dataset flipped", bits.count())));
  EXPECT_TRUE(results.good());
  EXPECT_LT(results.count(Outcome::same), std::ssize(results.outcomes) / 4) << "most bits have a meaning";
}

/// Changes a file of a checkpoint's copy at random.
class Damage {
 public:
  Damage(std::int64_t seed, fs::path copy, std::vector<fs::path> others)
      : random_(static_cast<std::uint64_t>(seed)), copy_(std::move(copy)), others_(std::move(others)) {}

  /// Returns false if the file happens to be as before.
  bool apply() {
    std::vector<fs::path> const files = files_in(copy_);
    fs::path const file = files[below(files.size())];
    std::string const before = read_whole(file);
    std::string const after = changed(before, read_whole(others_[below(others_.size())] / file.filename()),
                                      read_whole(files[below(files.size())]));
    write_file(file, after);
    return before != after;
  }

 private:
  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }

  /// The file's content with blocks of zeros, of others at their places, swapped or missing; or another file.
  std::string changed(std::string content, std::string const& stale, std::string const& sibling) {
    constexpr std::size_t sizes[] = {1, 16, 512, 4096};
    std::size_t const size = std::min(sizes[below(4)], content.size());
    std::size_t const blocks = content.size() / size;
    std::size_t const first = below(blocks) * size;
    std::size_t const second = below(blocks) * size;
    switch (below(9)) {
      case 0:
        return content.replace(first, size, size, '\0');
      case 1: {
        std::string const moved = content.substr(first, size);
        content.replace(first, size, content.substr(second, size));
        return content.replace(second, size, moved);
      }
      case 2:
        return content.substr(0, below(content.size()));
      case 3:
        return content + std::string(1 + below(5000), '\0');
      case 4:
        return first + size > stale.size() ? content : content.replace(first, size, stale.substr(first, size));
      case 5:
        return stale;
      case 6:
        return sibling;
      case 7:
        return content.replace(first, content.size() - first, content.size() - first, '\0');
      default:
        return content.replace(first, size, content.substr(second, size));
    }
  }

  std::mt19937_64 random_;
  fs::path copy_;
  std::vector<fs::path> others_;
};

TEST(BitFlips, BlocksAndFilesThatAreNotACheckpointsOwnAreDetected) {
  TemporaryDirectory const directory;
  fs::path const checkpoint = small_checkpoint(directory / "run", {.step = 7});
  std::vector<fs::path> const others{small_checkpoint(directory / "run", {.step = 8}),
                                     small_checkpoint(directory / "other", {.step = 7, .seed = 2})};
  fs::path const copy = directory / checkpoint.filename().string();
  CaseResults const results = run_cases(torture_count(300, 2'000), [&](std::int64_t number) {
    fs::remove_all(copy);
    fs::copy(checkpoint, copy);
    if (!Damage(number, copy, others).apply()) {
      load_all(copy);
      return true;
    }
    load_all(copy);
    return false;
  });
  print_figures(results.text("checkpoints with blocks zeroed, swapped, stale or cut off, or files of another"));
  EXPECT_TRUE(results.good());
  EXPECT_LT(results.count(Outcome::same), std::ssize(results.outcomes) / 3);

  fs::remove_all(copy);
  fs::copy(others.front(), copy);
  EXPECT_THROW(load_all(copy), DataError) << "a whole checkpoint under another step's name";
}

}  // namespace
}  // namespace heddle
