package driver

// SpaceAdvice is what [Shortage] says of a file system with so many free blocks and inodes.
var SpaceAdvice = spaceAdvice
