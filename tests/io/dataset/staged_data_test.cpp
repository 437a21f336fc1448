#include <heddle/io/dataset/staged_data.hpp>
#include <heddle/io/files/file_troubles.hpp>

#include "dataset_fixture.hpp"
#include "file_faults.hpp"

namespace heddle {
namespace {

constexpr int64_t pairs = 30'000;  // tokens and offsets have several blocks

/// A dataset, and a directory of a host for its copy.
class StagedDataTest : public ::testing::Test {
 protected:
  StagedDataTest() {
    write_sentences(original_, pairs);
    std::filesystem::create_directory(disk_);
    take_file_troubles();
  }

  StagedData stage() const {
    return stage_datasets({original_.string()}, disk_, Communicator::self(), [] {});
  }
  /// The samples as they were written, read from the copy if there is one.
  static bool has_all_samples(Dataset const& dataset) {
    bool same = dataset.size() == pairs;
    for (int64_t index = 0; same && index < pairs; ++index) {
      same = dataset.source(index) == sentence(index, 60) && dataset.target(index) == sentence(index + 3, 50);
    }
    return same;
  }
  Dataset open(StagedData const& staged) const {
    return Dataset::open(std::array{original_.string()}, Dataset::default_cache_bytes, staged.copies);
  }
  std::vector<std::string> partial_files() const {
    std::vector<std::string> found;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(disk_)) {
      if (entry.path().extension() == ".partial") {
        found.push_back(entry.path().string());
      }
    }
    return found;
  }

  TemporaryDirectory directory_;
  std::filesystem::path original_ = directory_ / "train.h5";
  std::filesystem::path disk_ = directory_ / "disk";
};

TEST_F(StagedDataTest, ACopyIsMadeOnceAndRead) {
  StagedData const first = stage();
  EXPECT_THAT(first.warnings, IsEmpty());
  ASSERT_EQ(first.copies.size(), 1U);
  std::filesystem::path const copy = first.copies.begin()->second;
  EXPECT_EQ(read_whole(copy), read_whole(original_));
  auto const written = std::filesystem::last_write_time(copy);
  StagedData const second = stage();
  EXPECT_EQ(second.copies, first.copies);
  EXPECT_EQ(std::filesystem::last_write_time(copy), written);
  Dataset const dataset = open(second);
  EXPECT_EQ(dataset.name(), original_.string());
  std::filesystem::remove(original_);
  EXPECT_TRUE(has_all_samples(dataset));
  EXPECT_THAT(take_file_troubles(), IsEmpty());
}

TEST_F(StagedDataTest, AFlippedBitOfACopyIsReadFromTheFile) {
  std::filesystem::path const copy = stage().copies.begin()->second;
  std::string const bytes = read_whole(copy);
  int found_later = 0;
  for (std::size_t place = 1000; place < bytes.size(); place += bytes.size() / 20) {
    std::string flipped = bytes;
    flipped[place] ^= 4;
    std::ofstream(copy, std::ios::binary) << flipped;
    StagedData const staged = stage();
    bool const found = !staged.warnings.empty();  // then it was made again
    EXPECT_TRUE(has_all_samples(open(staged))) << place;
    auto const troubles = take_file_troubles();
    EXPECT_TRUE(found || !troubles.empty()) << place;
    found_later += troubles.empty() ? 0 : 1;
    EXPECT_EQ(std::filesystem::exists(copy), troubles.empty());  // it is removed, or good
    std::ofstream(copy, std::ios::binary) << bytes;
  }
  EXPECT_GT(found_later, 5);
}

TEST_F(StagedDataTest, AFaultOfADiskLeavesAGoodCopyOrNone) {
  for (FileCall const call : {FileCall::pwrite, FileCall::pread, FileCall::fsync}) {
    for (FaultKind const kind :
         {FaultKind::io_error, FaultKind::no_space, FaultKind::short_count, FaultKind::flipped_bit}) {
      bool happened = true;
      for (int number = 0; happened && number < 100; ++number) {
        std::filesystem::remove_all(disk_);
        std::filesystem::create_directory(disk_);
        StagedData staged;
        {
          FileFault const fault(call, kind, number);
          staged = stage();
          happened = fault.happened();
        }
        SCOPED_TRACE(testing::Message() << "call " << static_cast<int>(call) << ", fault " << static_cast<int>(kind)
                                        << ", number " << number);
        EXPECT_THAT(partial_files(), IsEmpty());
        if (call == FileCall::pread && kind == FaultKind::flipped_bit) {  // of the file: its blocks' digests find it
          EXPECT_TRUE(has_all_samples(open(staged)));
        } else if (!staged.copies.empty()) {
          EXPECT_EQ(read_whole(staged.copies.begin()->second), read_whole(original_));
        }
        EXPECT_TRUE(happened || !staged.copies.empty());
      }
    }
  }
}

TEST_F(StagedDataTest, ADirectoryThatIsNotThereIsAWarning) {
  StagedData const staged = stage_datasets({original_.string()}, directory_ / "nowhere", Communicator::self(), [] {});
  EXPECT_THAT(staged.warnings, ElementsAre(HasSubstr("nowhere")));
  EXPECT_THAT(staged.copies, IsEmpty());
  EXPECT_EQ(staged.summary, "");
}

}  // namespace
}  // namespace heddle
