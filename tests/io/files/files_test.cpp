#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/files/file_troubles.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/hdf5/hdf5.hpp>

#include "file_faults.hpp"
#include "files/file_descriptor.hpp"
#include "test.hpp"

namespace heddle {
namespace {

using Kind = FileLock::Kind;
using Result = FileLock::Result;

class FilesTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
};

/// Runs `work` in a child process and returns the child's exit status.
int exit_code_of(std::function<int()> const& work) {
  pid_t const child = ::fork();
  if (child == 0) {
    ::_exit(work());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Makes the system call fail in this process with this errno from now on.
bool make_fail(int system_call, int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(system_call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog const program{std::size(filter), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(FilesTest, AFileIsReplacedWholeOrNotAtAll) {
  fs::path const file = directory_.path() / "file";
  replace_file(file, "first");
  replace_file(file, "second");
  EXPECT_EQ(read_whole(file), "second");
  EXPECT_THROW(replace_file(directory_.path() / "missing" / "file", "text"), Error);
  fs::create_directory(directory_.path() / "taken");
  EXPECT_THROW(replace_file(directory_.path() / "taken", "text"), Error);
  EXPECT_THAT(directory_.names(), UnorderedElementsAre("file", "taken"));
}

// A rename to a link or a device node would put a file in its place.
TEST_F(FilesTest, WhatIsNoRegularFileIsNotReplaced) {
  fs::path const target = directory_.write("target", "kept");
  fs::path const link = directory_.path() / "link";
  fs::path const fifo = directory_.path() / "fifo";
  fs::create_symlink("target", link);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  fs::create_directory(directory_.path() / "directory");
  for (auto const& replace : {std::function([](fs::path const& path) { replace_file(path, "new"); }),
                              std::function([](fs::path const& path) { require_replaceable(path); })}) {
    EXPECT_EQ(message_of<DataError>([&] { replace(link); }),
              link.string() + ": is a symbolic link, which would be replaced; remove it, or name target");
    EXPECT_EQ(message_of<DataError>([&] { replace(fifo); }),
              fifo.string() + ": cannot be replaced: it is not a regular file; name a file");
    EXPECT_EQ(message_of<DataError>([&] { replace(directory_.path() / "directory"); }),
              (directory_.path() / "directory").string() + ": cannot be written: it is a directory; name a file");
  }
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::is_fifo(fifo));
  EXPECT_EQ(read_whole(target), "kept");
  EXPECT_THAT(directory_.names(), UnorderedElementsAre("target", "link", "fifo", "directory"));
}

TEST_F(FilesTest, AMessageNamesTheFileAndNotTheTemporaryOne) {
  fs::path const file = directory_.path() / "missing" / "file";
  EXPECT_EQ(message_of<Error>([&] { replace_file(file, "text"); }),
            file.string() + ": could not create the file: No such file or directory");
}

// A file's bytes, its name and the names of new directories are on the disk when the call returns: without fsync they
// are not, so each of them must fail if fsync does.
TEST_F(FilesTest, WhatCannotBeBroughtToTheDiskIsAnError) {
  constexpr int no_seccomp = 99;
  replace_file(directory_.path() / "file", "old");
  EXPECT_EQ(exit_code_of([&] {
              if (!make_fail(SYS_fsync, EIO)) {
                return no_seccomp;
              }
              std::string const replaced = message_of<Error>([&] { replace_file(directory_.path() / "file", "new"); });
              std::string const made = message_of<Error>([&] { make_directory(directory_.path() / "a/b"); });
              bool const right = replaced.find("Input/output error") != std::string::npos &&
                                 made.find("Input/output error") != std::string::npos;
              return right ? 0 : 1;
            }),
            0);
  EXPECT_EQ(read_whole(directory_.path() / "file"), "old");
  EXPECT_THAT(directory_.names(), ElementsAre("file"));
}

TEST_F(FilesTest, ALockExcludesOthersUntilItsHolderIsGone) {
  fs::path const path = directory_.path() / ".lock";
  auto const taken_elsewhere = [&](Kind kind) {
    return exit_code_of([&] { return static_cast<int>(FileLock(path).try_take(kind)); });
  };
  {
    FileLock lock(path);
    EXPECT_EQ(lock.try_take(Kind::exclusive), Result::taken);
    EXPECT_EQ(taken_elsewhere(Kind::exclusive), static_cast<int>(Result::busy));
    EXPECT_EQ(taken_elsewhere(Kind::shared), static_cast<int>(Result::busy));
    EXPECT_EQ(lock.take(Kind::shared), Result::taken);
    EXPECT_EQ(taken_elsewhere(Kind::exclusive), static_cast<int>(Result::busy));
    EXPECT_EQ(taken_elsewhere(Kind::shared), static_cast<int>(Result::taken));
  }
  EXPECT_EQ(taken_elsewhere(Kind::exclusive), static_cast<int>(Result::taken));
  // A process that ends without releasing its lock.
  exit_code_of([&] {
    static FileLock held(path);
    return static_cast<int>(held.try_take(Kind::exclusive));
  });
  EXPECT_EQ(FileLock(path).try_take(Kind::exclusive), Result::taken);
}

TEST_F(FilesTest, ALockThatFailsIsAnErrorAndOneThatIsNotThereIsSaid) {
  fs::path const path = directory_.path() / ".lock";
  auto const with_errno = [&](int error) {
    return exit_code_of([&] {
      if (!make_fail(SYS_flock, error)) {
        return 99;
      }
      try {
        return static_cast<int>(FileLock(path).try_take(Kind::exclusive));
      } catch (Error const& problem) {
        return std::string(problem.what()).find("could not lock the file") != std::string::npos ? 50 : 51;
      }
    });
  };
  EXPECT_EQ(with_errno(EIO), 50);
  EXPECT_EQ(with_errno(ENOLCK), static_cast<int>(Result::not_supported));
  EXPECT_EQ(with_errno(ENOSYS), static_cast<int>(Result::not_supported));
  EXPECT_EQ(with_errno(EOPNOTSUPP), static_cast<int>(Result::not_supported));
  EXPECT_THROW(FileLock(directory_.path() / "missing" / ".lock"), Error);
}

TEST_F(FilesTest, AReadThatFailsIsTriedAgainAndCounted) {
  auto const path = directory_.write("data", "content");
  take_file_troubles();
  FileDescriptor const file = open_regular(path);
  std::string text(7, ' ');
  for (char const* const said : {"1 read so far failed (Input/output error)", "2 reads so far", "", "4 reads so far"}) {
    FileFault const fault(FileCall::pread, FaultKind::io_error, 0);
    EXPECT_EQ(read_at(file, path, 0, text_bytes(text)), 7U);
    EXPECT_EQ(text, "content");
    std::vector<std::string> const troubles = take_file_troubles();
    EXPECT_EQ(troubles.size(), *said == '\0' ? 0U : 1U);
    EXPECT_TRUE(troubles.empty() || troubles.front().find(said) != std::string::npos);
  }
}

TEST_F(FilesTest, Hdf5NeedsNoLocks) {
  fs::path const path = directory_.path() / "file.h5";
  EXPECT_EQ(exit_code_of([&] {
              if (!make_fail(SYS_flock, ENOLCK)) {
                return 99;
              }
              return message_of<Error>([&] {
                       hdf5::File::create(path).close();
                       hdf5::File::open(path);
                     }).empty()
                         ? 0
                         : 1;
            }),
            0);
}

}  // namespace
}  // namespace heddle
